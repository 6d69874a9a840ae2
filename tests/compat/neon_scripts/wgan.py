"""A Wasserstein network learns a cloud of points: where it lies, how wide it is, and which way it leans."""

import numpy as np

from neon.callbacks.callbacks import Callbacks, GANCostCallback
from neon.data import ArrayIterator
from neon.initializers import Constant, Gaussian, Kaiming
from neon.layers import Affine, GeneralizedGANCost, Sequential
from neon.layers.container import GenerativeAdversarial
from neon.models.model import GAN
from neon.optimizers import RMSProp
from neon.transforms import GANCost, Rectlin
from neon.util.argparser import NeonArgparser

parser = NeonArgparser(__doc__)
parser.add_argument("--clamp", type=float, default=0.1)
args = parser.parse_args()

rng = np.random.RandomState(7)
mixed = np.array([[1.0, 0.6], [0.0, 0.4]])
points = rng.randn(1024, 2).dot(mixed) + np.array([1.5, -0.5])
train = ArrayIterator(points.astype(np.float32), lshape=(2,))

relu = dict(bias=Constant(0), activation=Rectlin())
init = Gaussian(scale=0.1)
generator = Sequential([Affine(32, Kaiming(), **relu), Affine(2, init, bias=Constant(0))], name="Generator")
hidden = [Affine(48, Kaiming(), **relu) for _ in range(2)]
critic = Sequential([*hidden, Affine(1, init)], name="Discriminator")
gan = GAN(
    layers=GenerativeAdversarial(generator=generator, discriminator=critic), noise_dim=(4,), noise_type="normal",
    k=5, wgan_param_clamp=args.clamp, wgan_train_sched=False,
)  # fmt: skip
cost = GeneralizedGANCost(costfunc=GANCost(func="wasserstein"))
callbacks = Callbacks(gan, progress_bar=False, output_file=args.output_file)
callbacks.add_callback(GANCostCallback())
gan.fit(train, optimizer=RMSProp(learning_rate=2e-3), num_epochs=args.epochs, cost=cost, callbacks=callbacks)

made = []
for _ in range(16):
    gan.fill_noise(gan.zbuf, normal=True)
    made.append(gan.fprop_gen(gan.zbuf, inference=True).get().copy())
made = np.hstack(made)
largest = max(np.abs(layer.W.get()).max() for layer in critic.layers_to_optimize)
print("updates of the generator %d of %d" % (gan.gen_iter, gan.current_batch))
print("largest weight of the critic %.3f" % largest)
print("mean %.2f %.2f of %.2f %.2f" % (tuple(made.mean(axis=1)) + tuple(points.mean(axis=0))))
print("spread %.2f %.2f of %.2f %.2f" % (tuple(made.std(axis=1)) + tuple(points.std(axis=0))))
far = [made.mean(axis=1) - points.mean(axis=0), made.std(axis=1) - points.std(axis=0)]
print("off by %.2f" % np.abs(far).max())
print("correlation %.2f of %.2f" % (np.corrcoef(made)[0, 1], np.corrcoef(points.T)[0, 1]))
