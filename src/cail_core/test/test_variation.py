"""What differs between simulator and arm: its ranges, what a policy does not see, and what cloning makes of sensors' errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from cail_core.algorithms.batch import Batch
from cail_core.algorithms.eq7.cail import RewardModel
from cail_core.algorithms.eq7.confidence import Confidence
from cail_core.algorithms.method import method_config
from cail_core.algorithms.registry import Training
from cail_core.algorithms.settings import TrustConfig
from cail_core.algorithms.trainers import trust
from cail_core.algorithms.trainers.base import make_learner
from cail_core.algorithms.trainers.cloning import CloningLearner
from cail_core.algorithms.trainers.corrective import mismeasured, sensor_errors
from cail_core.algorithms.trainers.self_imitation import at_pace
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput, ConfigError
from cail_core.policy import Gates, load_policy, network_of, save_policy
from cail_core.rl.networks import TanhGaussianActor
from cail_core.tasks.base import Gate, Sensor, TaskSpec
from cail_core.tasks.variation import NOMINAL, Conditions, Variation, shown

NAMES = ("near", "far", "holding")
GATE = Gate(("near",), {"holding": (0.5, 1.5)})


def spec(**more: object) -> TaskSpec:
    return TaskSpec(name="reach", text="", robot_type="arm", fps=50, max_steps=10, observation_names=NAMES, action_names=("u",),
                    **more)  # type: ignore[arg-type]


def test_conditions_are_drawn_from_their_ranges_and_the_same_for_the_same_seed() -> None:
    variation = Variation(delay_s=(0.0, 0.06), speed=(0.5, 1.0))
    drawn = [variation.draw(np.random.default_rng(seed)) for seed in range(200)]
    delays = [one.delay_s for one in drawn]
    assert 0.0 <= min(delays) < 0.005
    assert 0.055 < max(delays) <= 0.06
    assert all(0.5 <= one.speed <= 1.0 and one.mass == 1.0 for one in drawn)
    assert drawn[7] == variation.draw(np.random.default_rng(7))
    assert Variation.only(drawn[3]).draw(np.random.default_rng(0)) == drawn[3]


def test_ranges_are_scaled_from_what_was_trained() -> None:
    half = Variation(delay_s=(0.0, 0.06), friction=(0.6, 1.4)).scaled(0.5)
    assert half.delay_s == (0.0, 0.03)
    assert half.friction == pytest.approx((0.8, 1.2))


def test_all_wrong_ranges_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"(?s)delay_s.*speed"):
        Variation(delay_s=(0.1, 0.0), speed=(0.0, 1.0))


def test_a_person_reads_units() -> None:
    assert Conditions(delay_s=0.04, bias_m=0.002, speed=0.5).text() == "delay 40 ms, speed limit × 0.5, tracker bias 2 mm"
    assert NOMINAL.text() == "as trained"
    assert shown("friction", 0.6) == "× 0.6"


def test_what_is_hidden_is_hidden_in_its_phase_only_and_the_same_in_numpy_and_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    actor = TanhGaussianActor(3, 1, generator)
    actor.standardise.set(torch.tensor([0.3, -0.2, 0.4]), torch.tensor([0.5, 2.0, 1.0]))
    torch.nn.init.normal_(list(actor.net)[-1].weight, generator=generator)
    actor.standardise.gates = Gates([GATE], NAMES)
    free = np.array([[0.1, 0.2, 0.0], [0.9, 0.2, 0.0]], np.float32)
    held = free + np.array([0.0, 0.0, 1.0], np.float32)
    network = network_of(actor)
    for states, alike in ((free, False), (held, True)):
        theirs = actor.gaussian(torch.from_numpy(states))[0].detach().numpy()
        assert network(states) == pytest.approx(theirs, abs=1e-5)
        assert network.one_by_one(states) == pytest.approx(theirs, abs=1e-5)
        assert bool(np.allclose(theirs[0], theirs[1], atol=1e-5)) == alike


def test_a_card_keeps_its_gates_and_an_old_one_sees_everything(tmp_path: Path) -> None:
    actor = TanhGaussianActor(3, 1, torch.Generator().manual_seed(0))
    actor.standardise.gates = Gates([GATE], NAMES)
    save_policy(tmp_path / "p", actor, spec(gates=(GATE,)), "bc", {})
    assert (gates := load_policy(tmp_path / "p").network.gates) is not None
    assert gates.about == [{"hidden": ["near"], "when": {"holding": [0.5, 1.5]}}]
    card = json.loads((tmp_path / "p" / "policy.json").read_text())
    (tmp_path / "p" / "policy.json").write_text(json.dumps({name: value for name, value in card.items() if name != "gates"}))
    assert load_policy(tmp_path / "p").network.gates is None
    (tmp_path / "p" / "policy.json").write_text(json.dumps({**card, "gates": [{"hidden": ["nobody"], "when": {}}]}))
    with pytest.raises(BadInput, match="gates"):
        load_policy(tmp_path / "p")


def test_gates_and_sensors_name_observations() -> None:
    with pytest.raises(ValueError, match="nothing_like_it"):
        spec(sensors=(Sensor("eye", "m", 0.1, {"nothing_like_it": 1.0}),))


def test_sensors_errors_move_what_they_are_in() -> None:
    eye = Sensor("eye", "m", 0.01, {"near": 5.0, "far": -5.0})
    errors = sensor_errors(spec(sensors=(eye, Sensor("hand", "", 0.2, {"holding": 1.0}))), 2.0)
    assert errors.numpy() == pytest.approx(np.array([[0.1, -0.1, 0.0], [0.0, 0.0, 0.4]]))
    pairs = Batch(*(torch.zeros(20_000, n) for n in (3, 1, 3)), torch.zeros(20_000), torch.zeros(20_000))
    moved = mismeasured(pairs, errors, torch.Generator().manual_seed(0)).state
    assert torch.cov(moved.T).numpy() == pytest.approx((errors.T @ errors).numpy(), abs=0.01)
    assert mismeasured(pairs, torch.empty(0, 3), torch.Generator()) is pairs


def demonstrations() -> Demonstrations:
    """Two episodes of five steps, whose actions count up from 0 and from 0.5."""
    actions = np.concatenate([0.1 * np.arange(5), 0.5 + 0.1 * np.arange(5)])[:, None].astype(np.float32)
    states = np.concatenate([actions, np.zeros((10, 2), np.float32)], axis=1)
    return Demonstrations(states, actions, states, np.zeros(10, bool), np.array([0, 5, 10]), np.zeros(2, np.int64))


def test_cloning_ahead_takes_later_actions_of_the_same_episode() -> None:
    config = method_config("bc", changes={"steps": 1, "cloning.batch_size": 400, "cloning.lead_steps": 2})

    class Reach:
        spec = spec()

    learner = make_learner("bc", Reach(), demonstrations(), config, 0)  # type: ignore[arg-type]
    assert isinstance(learner, CloningLearner)
    rows, pairs = next(iter(learner._cloning_batches(1)))
    ahead = (10 * (pairs.action[:, 0] - learner.data.action[rows, 0])).round().int()
    inside = (rows % 5) < 3
    assert set(ahead[inside].tolist()) == {0, 1, 2}
    assert ahead[rows % 5 == 4].abs().max() == 0, "the last step of an episode has none after it"
    learner.close()


def test_an_episode_that_took_twice_as_long_is_judged_by_every_second_step() -> None:
    judged = at_pace(demonstrations(), [2.0, 1.0])
    assert np.diff(judged.starts).tolist() == [2, 5]
    assert judged.actions[:, 0] == pytest.approx([0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])


def test_of_few_demonstrations_a_larger_share_is_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two demonstrations, one far more trusted: a share of a half is one of them; at least two is both."""
    class Reach:
        spec = spec()

    def learned(demos: Demonstrations, config: TrustConfig, *_: object, steps: int | None) -> RewardModel:
        beta = Confidence(demos, config.beta, torch.tensor([2.0] * 5 + [0.5] * 5))
        return RewardModel(None, beta, [])  # type: ignore[arg-type]

    monkeypatch.setattr(trust, "learn_confidence_offline", learned)

    def share(least: int) -> float:
        config = method_config("cail-bc", changes={"trusted_fraction": 0.5, "min_trusted_demos": least})
        weight = trust.offline_trust(Training(Reach(), demonstrations(), config, 0, torch.Generator())).weight  # type: ignore[arg-type]
        return float(weight.sum() ** 2 / weight.square().sum() / 10)

    assert share(0) == pytest.approx(0.5, abs=0.01)
    assert share(2) > 0.7
