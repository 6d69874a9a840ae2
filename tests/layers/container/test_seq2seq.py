"""Encoder and decoder: training, generation step by step, and beam search."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest

from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.initializers import Constant, Gaussian, GlorotUniform
from neonlike.layers import GRU, Affine, GeneralizedCost, Linear, LookupTable, Seq2Seq, Sequential
from neonlike.layers.container import Decoder, Encoder
from neonlike.models import Model
from neonlike.models.beam import BeamSearch
from neonlike.nervanaobject import build
from neonlike.optimizers import Adam
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import Accuracy, CrossEntropyMulti, Logistic, Softmax, Tanh
from tests.support.differences import slope
from tests.support.float64.recurrent_loops import KINDS, Loop, make

N, NIN, NOUT, ENC, DEC = 3, 2, 4, 3, 2
pytestmark = pytest.mark.samples(N)


def set_up(net, shape):
    net.configure(shape)
    net.allocate()
    net.allocate_deltas()
    return net


def writer(nout=NIN, activation=None):
    return Affine(nout, Gaussian(scale=0.5), bias=Gaussian(scale=0.5), activation=activation or Tanh())


def of_kind(kind, nout=NOUT):
    return make(kind, nout, reset_cells=True)


def dense(affine, x):
    W, b = affine[0].W.get(), affine[1].W.get()
    return np.tanh(W @ x + b)


class TestPasses:
    """Forward and backward."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_training_as_written_out(self, be64, rng, kind):
        out = writer()
        net = set_up(Seq2Seq([[of_kind(kind)], [of_kind(kind), out]]), (NIN, ENC, NIN, DEC))
        enc, dec = net.encoder.layers[0], net.decoder.layers[0]
        x, z = rng.normal(size=(NIN, ENC * N)), rng.normal(size=(NIN, DEC * N))
        for _ in range(2):
            y = net.fprop((be64.array(x), be64.array(z))).get()
            read = Loop(kind, enc.W.get(), x, ENC, np.zeros((NOUT, N)))
            wrote = Loop(kind, dec.W.get(), z, DEC, read.h[-1])
            expected = dense(out, wrote.outputs)
            np.testing.assert_allclose(y, expected, rtol=1e-9)
            e = rng.normal(size=y.shape)
            net.bprop(be64.array(e))
            inner = e * (1 - expected**2)
            np.testing.assert_allclose(out[0].dW.get(), inner @ wrote.outputs.T, rtol=1e-9)
            back = wrote.backward(out[0].W.get().T @ inner, through=True)
            np.testing.assert_allclose(dec.dW.get(), back["dW"], rtol=1e-8, atol=1e-10)
            final = np.zeros((NOUT, ENC * N))
            final[:, -N:] = back["passed"][0]
            np.testing.assert_allclose(enc.dW.get(), read.backward(final)["dW"], rtol=1e-8, atol=1e-10)

    def test_several_layers_and_connections(self, be64, rng):
        """Gradients by differences; defect 43: errors of lower layers' states reach those layers."""
        encoder = [of_kind("gru"), Sequential([of_kind("lstm", 5)]), Linear(3, Gaussian()), of_kind("rnn")]
        decoder = [of_kind("rnn", 5), of_kind("gru"), of_kind("lstm"), writer()]
        net = set_up(Seq2Seq([encoder, decoder], decoder_connections=[1, 0, None]), (NIN, ENC, NIN, DEC))
        assert [layer.classnm for layer in net.encoder.recurrent] == ["GRU", "LSTM", "Recurrent"]
        inputs = tuple(be64.array(rng.normal(size=(NIN, steps * N))) for steps in (ENC, DEC))
        e = rng.normal(size=(NIN, DEC * N))
        net.fprop(inputs)
        net.bprop(be64.array(e))
        for layer in net.layers_to_optimize:
            direction = rng.normal(size=layer.W.shape)
            found = slope(lambda: (net.fprop(inputs).get() * e).sum(), layer.W, direction, 1e-5)
            expected = (layer.dW.get() * direction).sum()
            assert found == pytest.approx(expected, rel=1e-5, abs=1e-9), layer.name

    @pytest.mark.parametrize("kind", KINDS)
    def test_generation_feeds_what_was_written(self, be64, rng, kind):
        out = writer()
        net = set_up(Seq2Seq([[of_kind(kind)], [of_kind(kind), out]]), (NIN, ENC, NIN, DEC + 2))
        enc, dec = net.encoder.layers[0], net.decoder.layers[0]
        steps = DEC + 2
        pair = tuple(be64.array(rng.normal(size=(NIN, count * N))) for count in (ENC, steps))
        before = net.fprop(pair).get()
        for samples in (N, 2, N):
            x = rng.normal(size=(NIN, ENC * samples))
            h = Loop(kind, enc.W.get(), x, ENC, np.zeros((NOUT, samples))).h[-1]
            c, z, found = np.zeros_like(h), np.zeros((NIN, samples)), []
            for _ in range(steps):
                one = Loop(kind, dec.W.get(), z, 1, h, c)
                h, c, z = one.h[0], one.c[0], dense(out, one.h[0])
                found.append(z)
            got = net.fprop(be64.array(x), inference=True).get()
            np.testing.assert_allclose(got, np.concatenate(found, axis=1), rtol=1e-9)
        # Training goes on as if nothing had been generated.
        np.testing.assert_array_equal(net.fprop(pair).get(), before)
        np.testing.assert_array_equal(net.fprop(pair, inference=True).get(), net.generate(pair[0]).get())

    def test_generation_of_words(self, be, rng):
        words = 5
        encoder = [LookupTable(words, 3, Gaussian()), of_kind("gru")]
        decoder = [LookupTable(words, 3, Gaussian()), of_kind("gru"), writer(words, Softmax())]
        net = set_up(Seq2Seq([encoder, decoder]), ((ENC,), (4,)))
        assert net.in_shape == (ENC, 4)
        x = be.array(rng.integers(words, size=(ENC, N)), dtype=np.int32)
        generated = net.fprop(x, inference=True).get().reshape(words, 4, N)
        assert np.abs(generated.sum(axis=0) - 1).max() < 1e-5
        # The same with the words that it chose given at once.
        z = np.zeros((4, N))
        z[1:] = generated.argmax(axis=0)[:-1]
        at_once = net.fprop((x, be.array(z, dtype=np.int32))).get().reshape(words, 4, N)
        np.testing.assert_allclose(at_once, generated, rtol=1e-4, atol=1e-6)

    def test_lengths(self, be64, rng):
        """The state after each sample's own last step is handed on, and gets the error."""
        net = set_up(Seq2Seq([[of_kind("gru")], [of_kind("gru"), writer()]]), (NIN, ENC, NIN, DEC))
        net.set_lengths([3, 1, 2])
        pair = tuple(be64.array(rng.normal(size=(NIN, count * N))) for count in (ENC, DEC))
        e, enc = rng.normal(size=(NIN, DEC * N)), net.encoder.layers[0]
        net.fprop(pair)
        net.bprop(be64.array(e))
        direction = rng.normal(size=enc.W.shape)
        found = slope(lambda: (net.fprop(pair).get() * e).sum(), enc.W, direction, 1e-5)
        assert found == pytest.approx((enc.dW.get() * direction).sum(), rel=1e-6)


class Copies:
    """Sequences of words that the decoder is to repeat."""

    shape = decoder_shape = (4, 3)

    def __init__(self, be, count, rng, name=None):
        self.be, self.words = be, rng.integers(4, size=(count, 3))
        self.ndata, self.nbatches, self.name = count, count // be.bsz, name

    def reset(self):
        """Nothing to do."""

    def onehot(self, words):
        return self.be.array(np.eye(4)[words.T.reshape(-1)].T)

    def __iter__(self):
        for part in self.words.reshape(self.nbatches, -1, 3):
            given = np.concatenate([np.zeros((len(part), 1), int), part[:, :-1]], axis=1)
            z = self.onehot(given).get()
            z[:, : len(part)] = 0  # the first step reads zeros
            yield (self.onehot(part), self.be.array(z)), self.onehot(part)


@pytest.fixture
def trained(be):
    """A model that has learnt to copy, and its data."""
    be.bsz = 32
    be.rng_reset()
    data = Copies(be, 256, np.random.default_rng(0))

    def gru():
        return GRU(24, GlorotUniform(), activation=Tanh(), gate_activation=Logistic(), reset_cells=True)

    writes = Affine(4, GlorotUniform(), bias=Constant(0), activation=Softmax())
    model = Model(Seq2Seq([Encoder([gru()]), Decoder([gru(), writes])]))
    model.fit(data, GeneralizedCost(CrossEntropyMulti()), Adam(learning_rate=0.02), num_epochs=25)
    return model, data


class TestModel:
    """Whole trainings."""

    def test_it_learns_to_copy_and_is_saved(self, be, trained, tmp_path):
        model, data = trained
        outputs = model.get_outputs(data)
        assert outputs.shape == (256, 3, 4)
        assert (outputs.argmax(axis=2) == data.words).all(axis=1).mean() > 0.95
        model.save_params(path := str(tmp_path / "copies.p"))
        loaded = Model(path)
        np.testing.assert_array_equal(loaded.get_outputs(data), outputs)
        assert len(loaded.layers.encoder.layers) == 1 and loaded.layers.decoder_connections == [0]
        saved = model.serialize()
        assert saved["train_input_shape"] == (4, 3, 4, 3)
        assert saved["model"]["config"]["num_encoder_layers"] == 1


def exhaustive(net, x, words, steps, start=None):
    """For each sample all sequences of words with the sum of the logarithms of their probabilities, best last."""
    decoder, found = net.decoder, []
    net.encoder.fprop(x, inference=True)
    first = net.initial_states()
    with decoder.step_by_step():
        for sequence in product(range(words), repeat=steps):
            z, states, total = decoder.next_inputs(N, start), first, np.zeros(N)
            for word in sequence:
                total = total + np.log(decoder.fprop(z, True, states).get()[word])
                states = decoder.states()
                z = decoder.words_as_inputs(np.full((1, N), word, np.int32))
            found.append((sequence, total))
    return [sorted(((total[n], sequence) for sequence, total in found)) for n in range(N)]


class TestBeamSearch:
    """The most likely sequences."""

    def network(self, kind, words=3, lookup=False, start=None):
        def side():
            return [LookupTable(words, 2, Gaussian(scale=2))] if lookup else []

        strong = make(kind, NOUT, init=Gaussian(scale=2), reset_cells=True)
        writes = Affine(words, Gaussian(scale=2), bias=Gaussian(), activation=Softmax())
        decoder = Decoder([*side(), strong, writes], start_index=start)
        shape = ((ENC,), (4,)) if lookup else (words, ENC, words, 4)
        return set_up(Seq2Seq([[*side(), of_kind(kind)], decoder]), shape)

    @pytest.mark.parametrize(
        ("kind", "lookup", "start"), [("gru", False, None), ("lstm", True, None), ("rnn", True, 2)]
    )
    def test_with_all_beams_it_is_exhaustive(self, be64, rng, kind, lookup, start):
        words, steps = 3, 3
        net = self.network(kind, words, lookup, start)
        x = rng.integers(words, size=(ENC, N)) if lookup else rng.normal(size=(words, ENC * N))
        x = be64.array(x, dtype=np.int32 if lookup else None)
        search = BeamSearch(net)
        best = search.beamsearch(x, num_beams=words**steps, steps=steps)
        assert best.shape == (steps, N) and len(search.candidates) == words**steps
        begin = None if start is None else net.decoder.words_as_inputs(np.full((1, N), start, np.int32))
        scores = search.scores.get()
        for n, expected in enumerate(exhaustive(net, x, words, steps, begin)):
            np.testing.assert_allclose(scores[:, n], [score for score, _ in expected], rtol=1e-9)
            assert [tuple(beam[:, n]) for beam in search.candidates[-5:]] == [words for _, words in expected[-5:]]
            assert tuple(best.get()[:, n]) == expected[-1][1]
        assert len(search.scores_list) == len(search.z_list) == words**steps
        np.testing.assert_array_equal(search.scores_list[-1].get(), scores[-1:])

    def test_few_beams_keep_the_best_at_each_step(self, be64, rng):
        """Against a search in Python over histories, each scored anew from its beginning."""
        words, beams, net = 3, 2, self.network("gru")
        x = be64.array(rng.normal(size=(words, ENC * N)))
        search = BeamSearch(net)
        search.beamsearch((x, None), num_beams=beams)
        scored = {steps: exhaustive(net, x, words, steps) for steps in range(1, 5)}
        for n in range(N):
            live = [()]
            for steps in range(1, 5):
                score = {sequence: total for total, sequence in scored[steps][n]}
                longer = [(*beam, word) for beam in live for word in range(words)]
                live = sorted(longer, key=score.get)[-beams:]
            assert [tuple(beam[:, n]) for beam in search.candidates] == live
            np.testing.assert_allclose(search.scores.get()[:, n], [score[beam] for beam in live], rtol=1e-9)

    def test_one_beam_takes_the_most_likely_word(self, be, rng):
        net = self.network("gru", lookup=True)
        x = be.array(rng.integers(3, size=(ENC, N)), dtype=np.int32)
        words = BeamSearch(net).beamsearch(x, num_beams=1).get()
        np.testing.assert_array_equal(words, net.generate(x).get().reshape(3, 4, N).argmax(axis=0))
        longer = BeamSearch(net).beamsearch(x, num_beams=1, steps=6).get()
        assert longer.shape == (6, N) and (longer[:4] == words).all()

    def test_in_neons_dialect(self, be, rng):
        net, x = self.network("gru"), be.array(rng.normal(size=(3, ENC * N)))
        expected = BeamSearch(net).beamsearch(x, num_beams=2).get()
        with neon_dialect():
            np.testing.assert_array_equal(BeamSearch(net).beamsearch(x, num_beams=2).get(), expected)

    def test_outputs_of_a_model(self, be, trained):
        model, data = trained
        words = model.get_outputs_beam(data, num_beams=3)
        assert words.shape == (256, 3) and (words == data.words).all(axis=1).mean() > 0.95
        assert model.get_outputs_beam(data, num_beams=2, steps=2).shape == (256, 2)
        np.testing.assert_array_equal(model.get_outputs_beam(data), model.get_outputs(data))

    @pytest.fixture
    def sources(self, trained):
        """The data of ``trained`` without the words before."""
        data = trained[1]

        class Sources:
            shape, decoder_shape, ndata, nbatches = data.shape, None, data.ndata, data.nbatches

            def reset(self):
                data.reset()

            def __iter__(self):
                return ((x[0], t) for x, t in data)

        return Sources()

    def test_data_without_inputs_for_the_decoder(self, be, trained, sources):
        """A network that was trained with the words before is decoded from its own predictions."""
        model, data = trained
        np.testing.assert_array_equal(model.get_outputs(sources), model.get_outputs(data))
        words = model.get_outputs_beam(data, num_beams=2)
        np.testing.assert_array_equal(model.get_outputs_beam(sources, num_beams=2), words)
        assert model.eval(sources, Accuracy()) == model.eval(data, Accuracy())
        with neon_dialect():
            np.testing.assert_array_equal(model.get_outputs_beam(sources, num_beams=2), words[:, :, np.newaxis])
            model.initialize((7, 7))  # at once, as neon does
        with pytest.raises(ShapeError, match="was set up for inputs of shape"):
            model.initialize((7, 7))

    @pytest.mark.parametrize("dialect", [nullcontext, neon_dialect])
    def test_a_saved_model_meets_such_data_first(self, be, trained, sources, tmp_path, dialect):
        model, data = trained
        words, outputs = model.get_outputs_beam(data, num_beams=2), model.get_outputs(data)
        model.save_params(path := str(tmp_path / "copies.p"))
        with dialect():
            got = Model(path).get_outputs_beam(sources, num_beams=2)
            np.testing.assert_array_equal(got.reshape(words.shape), words)
            np.testing.assert_array_equal(Model(path).get_outputs(sources), outputs)
            loaded = Model(path)
            assert loaded.eval(sources, Accuracy()) == model.eval(data, Accuracy())
            loaded.fit(data, GeneralizedCost(CrossEntropyMulti()), Adam(), loaded.completed_epochs + 1)  # goes on

    def test_the_shapes_of_a_file_are_those_it_was_trained_on(self, be, tmp_path):
        """Also where the decoder has other steps and words than the encoder, and the data say nothing of them."""
        be.bsz = N
        model = Model(Seq2Seq([[of_kind("gru")], [of_kind("gru"), writer(7)]]))
        model.initialize((NIN, ENC, 7, DEC))
        model.save_params(path := str(tmp_path / "m.p"))
        data = SimpleNamespace(shape=(NIN, ENC), decoder_shape=None)
        loaded = Model(path)
        loaded.initialize(data)
        assert loaded.layers.in_shape == (NIN, ENC, 7, DEC) and loaded.layers.out_shape == (7, DEC)
        saved = model.serialize()
        for damaged in ("abc", (4,), (NIN, ENC, "x", 2), (NIN, ENC, 7, -1), None):
            loaded = Model(saved | {"train_input_shape": damaged})
            loaded.initialize(data)  # as a network that no file speaks of
            assert loaded.layers.in_shape == (NIN, ENC, 7, ENC)

    @pytest.mark.parametrize("words", [NIN, 7])
    def test_a_new_network_writes_as_many_steps_as_it_reads(self, be, rng, words):
        be.bsz = N
        net = Seq2Seq([[of_kind("gru")], [of_kind("gru"), writer(words, Softmax())]])
        net.configure(SimpleNamespace(shape=(NIN, ENC), decoder_shape=None))
        net.allocate()
        assert net.in_shape == (NIN, ENC, words, ENC)  # inputs of the decoder are what it writes
        x = be.array(rng.normal(size=(NIN, ENC * N)))
        assert net.fprop(x, inference=True).shape == (words, ENC * N)
        with pytest.raises(DTypeError, match=r"inputs are a pair.*get_prev_target=True"):
            net.fprop(x)
        lookup = [LookupTable(words, 2, Gaussian()), of_kind("gru"), writer(words, Softmax())]
        net = Seq2Seq([[LookupTable(9, 2, Gaussian()), of_kind("gru")], lookup])
        net.configure(SimpleNamespace(shape=(ENC,), decoder_shape=None))
        net.allocate()
        assert net.in_shape == (ENC, ENC) and net.out_shape == (words, ENC)
        written = net.fprop(be.array(rng.integers(9, size=(ENC, N)), dtype=np.int32), inference=True)
        assert written.shape == (words, ENC * N)

    def test_wrong_arguments(self, be, rng):
        with pytest.raises(DTypeError, match="Seq2Seq"):
            BeamSearch(Sequential([Linear(3, Gaussian())]))
        net = self.network("gru")
        with pytest.raises(ShapeError, match="num_beams"):
            BeamSearch(net).beamsearch(be.ones((3, ENC * N)), num_beams=0)
        net.decoder_connections = []
        with pytest.raises(ArgumentError, match="initial states for 0"):
            BeamSearch(net).beamsearch(be.ones((3, ENC * N)))


class TestArguments:
    """Descriptions and errors."""

    def test_descriptions(self, be):
        net = Seq2Seq(
            [[of_kind("gru"), of_kind("gru")], Decoder([of_kind("gru"), writer()], start_index=2)],
            decoder_connections=[1],
        )
        again = build(net.get_description())
        assert (len(again.encoder.layers), len(again.decoder.layers)) == (2, 4)
        assert again.decoder_connections == [1] and again.decoder.start_index == 2
        assert [layer.name for layer in again.layers] == [layer.name for layer in net.layers]

    def test_wrong_arguments(self, be, rng):
        with pytest.raises(ArgumentError, match="pair"):
            Seq2Seq([of_kind("gru")])
        with pytest.raises(ArgumentError, match="encoder has 2 recurrent layers, the decoder 1"):
            Seq2Seq([[of_kind("gru"), of_kind("gru")], [of_kind("gru")]])
        for connections in ([2], [0, 1], [-1]):
            with pytest.raises(ArgumentError, match="decoder_connections"):
                Seq2Seq([[of_kind("gru"), of_kind("gru")], [of_kind("gru")]], decoder_connections=connections)
        with pytest.raises(ShapeError, match=r"4 units.*5"):
            Seq2Seq([[of_kind("gru", 5)], [of_kind("gru", 4)]]).configure((NIN, ENC, NIN, DEC))
        net = set_up(Seq2Seq([[of_kind("gru")], [of_kind("gru"), writer(3)]]), (NIN, ENC, NIN, DEC))
        x, z = be.ones((NIN, ENC * N)), be.ones((NIN, DEC * N))
        with pytest.raises(DTypeError, match="pair"):
            net.fprop(x)
        with pytest.raises(ShapeError, match="2 features and outputs 3"):
            net.fprop(x, inference=True)
        assert net.fprop((x, z)).shape == (3, DEC * N)  # all steps again after the error
        with pytest.raises(ArgumentError, match="1 recurrent layers"):
            net.decoder.fprop(z, init_state=[])
        assert net.encoder._recurrent == net.encoder.layers

    def test_shapes_of_data(self, be):
        class Data:
            shape, decoder_shape = (NIN, ENC), (3, DEC)

        net = Seq2Seq([[of_kind("gru")], [of_kind("gru")]])
        assert net.configure(Data()).in_shape == (NIN, ENC, 3, DEC)
        assert net.configure((NIN, ENC)).in_shape == (NIN, ENC, NIN, ENC)
        assert net.encoder.in_shape == net.decoder.in_shape == (NIN, ENC) and net.out_shape == (NOUT, ENC)
