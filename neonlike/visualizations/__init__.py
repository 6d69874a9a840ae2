"""What callbacks recorded, as numbers to plot, figures and pages."""
