"""Shows records of callbacks as numbers to plot, figures and pages."""
