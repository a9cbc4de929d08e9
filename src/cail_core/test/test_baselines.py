"""The methods that CAIL is compared with: their own mathematics by hand, and what they share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from line import GOAL, MIXED, SMALL, STEPS, Line, demonstrations, small

from cail_core.algorithms.baselines.drex import DrexLearner, noisy_rollouts
from cail_core.algorithms.baselines.dwbc import DwbcSettings, discriminator_loss, expert_episodes, policy_weights
from cail_core.algorithms.baselines.ic_gail import IcGail
from cail_core.algorithms.baselines.labels import pair_labels, rank_labels
from cail_core.algorithms.baselines.rinse import arc_length, smoothness, trajectory_scores
from cail_core.algorithms.baselines.ssrr import Sigmoid, SsrrLearner, SsrrReward, fit_sigmoid
from cail_core.algorithms.baselines.trex import SnippetReward, Trajectories, ranked
from cail_core.algorithms.baselines.two_iwil import cu_risk, predicted_confidence
from cail_core.algorithms.batch import Batch, demo_batch
from cail_core.algorithms.inner.gail import Gail
from cail_core.algorithms.method import method_config, read_part
from cail_core.algorithms.registry import get_method
from cail_core.algorithms.settings import RewardConfig
from cail_core.algorithms.trainers.absorbing import padded
from cail_core.algorithms.trainers.base import make_learner
from cail_core.demos.demonstrations import Demonstrations
from cail_core.errors import BadInput
from cail_core.policy import load_policy
from cail_core.training import train

BASELINES = ("2iwil", "ic-gail", "t-rex", "d-rex", "ssrr", "rinse", "dwbc")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    torch.set_num_threads(1)
    return iter([None])


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def logit(d: float) -> torch.Tensor:
    return torch.tensor([math.log(d / (1 - d))], dtype=torch.float64)


# --- labels -----------------------------------------------------------------------------------------------------------------


def test_labels_are_evenly_spaced_by_rank() -> None:
    """Neither all 0 nor the places of an argsort: the best has 1 wherever it stands."""
    assert rank_labels(np.array([3, 1, 5, 2, 4])).tolist() == [0.5, 1.0, 0.0, 0.75, 0.25]


def test_unranked_have_no_label_and_ties_share_one() -> None:
    labels = rank_labels(np.array([0, 1, 2, 0, 2, 4]))
    assert np.isnan(labels[[0, 3]]).all()
    assert labels[[1, 2, 4, 5]].tolist() == [1.0, 0.5, 0.5, 0.0]


def test_a_pair_has_the_label_of_its_trajectory() -> None:
    demos = demonstrations(**MIXED, ranked=1)
    label = pair_labels(demos).reshape(-1, STEPS)
    assert label[0].unique().tolist() == [1.0]
    assert label[20].unique().tolist() == [0.0]
    assert int(label.isnan().all(dim=1).sum()) == 38


# --- 2IWIL ------------------------------------------------------------------------------------------------------------------


def test_cu_risk_by_hand() -> None:
    """g = 0: ℓ = log 2 everywhere, so R = log 2 · (E r + 1 − m − E r + m) = log 2, whatever the labels."""
    zero = torch.zeros(2, dtype=torch.float64)
    assert float(cu_risk(zero, torch.tensor([1.0, 0.2]), zero, 0.9)) == pytest.approx(math.log(2))
    # One labelled pair g = 1, r = 0.5, one unlabelled g = −1, m = 0.8: ℓ(1) = .313262, ℓ(−1) = 1.313262.
    risk = cu_risk(torch.tensor([1.0], dtype=torch.float64), torch.tensor([0.5]), torch.tensor([-1.0], dtype=torch.float64), 0.8)
    assert float(risk) == pytest.approx(0.5 * 0.313262 + max(0.0, -0.3 * 1.313262 + 0.8 * 0.313262), abs=1e-6)


def test_the_risk_on_bad_pairs_is_never_negative() -> None:
    """r = 1 and m = 0.9: the estimate on bad pairs is −0.9·ℓ(−3) + 0.9·ℓ(3) < 0 and counts as 0."""
    g = torch.tensor([3.0], dtype=torch.float64)
    assert float(cu_risk(g, torch.tensor([1.0]), -g, 0.9)) == pytest.approx(math.log(1 + math.exp(-3)), abs=1e-9)


def test_labels_weigh_pair_by_pair() -> None:
    """Swapping two labels changes the risk: it is not reduced to a scalar before they come in."""
    g, other = torch.tensor([2.0, -2.0]), torch.zeros(1)
    right, wrong = (float(cu_risk(g, torch.tensor(r), other, 0.5)) for r in ([0.9, 0.1], [0.1, 0.9]))
    assert right < wrong


def test_2iwil_predicts_who_is_good_from_two_labelled_trajectories() -> None:
    demos = demonstrations(**MIXED, ranked=1)
    confidence = predicted_confidence(demos, small("2iwil").classifier, generator(), 200).reshape(-1, STEPS)
    assert confidence[0].unique().tolist() == [1.0]
    unlabelled = torch.cat([confidence[1:20], confidence[21:]]).mean(dim=1)
    assert float(unlabelled[:19].min()) > float(unlabelled[19:].max()) + 0.2


# --- IC-GAIL ----------------------------------------------------------------------------------------------------------------


def ic_gail(demos: Demonstrations, threshold: float) -> IcGail:
    data = demo_batch(demos)
    return IcGail(2, 1, generator(), hidden=[4], threshold=threshold, labelled=padded(data, torch.zeros(0, dtype=torch.int64)),
                  label=pair_labels(demos))


def test_ic_gail_mixture_adds_up_to_one() -> None:
    demos = demonstrations((0.5, 0.0, -0.5), (0.1,) * 3, episodes=2, ranked=1)  # labels 1, ½, 0: α = ½
    for threshold, part in ((0.7, 0.7), (0.0, 0.5)):
        inner = ic_gail(demos, threshold)
        assert inner.part == pytest.approx(part)
        assert len(inner.doubt) == 3 * STEPS
        assert float(inner.doubt.sum()) == pytest.approx(1 - part)
        by_label = [0.0, (1 - part) / 3 / STEPS, (1 - part) * 2 / 3 / STEPS]
        assert inner.doubt.reshape(3, STEPS)[:, 0].tolist() == pytest.approx(by_label)


def test_ic_gail_is_content_when_the_policy_makes_the_good_part() -> None:
    """p = ½ good + ½ bad. With π = good the mixture is p itself: D = ½ is the optimum, its gradient 0. With π = p it is not."""
    demos = demonstrations(**MIXED, ranked=1)
    rows = np.r_[0:STEPS, 20 * STEPS:21 * STEPS]  # one good and one bad trajectory, both labelled
    inner = ic_gail(demos, threshold=0.0)
    with torch.no_grad():
        for p in inner.net[-1].parameters():
            p.zero_()
    both, good = demo_flagged(demos, rows), demo_flagged(demos, rows[:STEPS])

    def slope(policy: Batch) -> float:
        theta = {name: value.requires_grad_() for name, value in inner.theta().items()}
        loss = inner.loss(theta, torch.ones(2 * STEPS), both, policy)
        assert float(loss.detach()) == pytest.approx(2 * math.log(2), abs=1e-5)
        grad, = torch.autograd.grad(loss, [theta["net.4.weight"] if "net.4.weight" in theta else theta["net.2.weight"]])
        return float(grad.abs().max())

    assert slope(good) < 1e-5
    assert slope(both) > 1e-3


def demo_flagged(demos: Demonstrations, rows: Any) -> Batch:
    batch = demo_batch(demos).rows(torch.as_tensor(rows))
    return batch._replace(state=torch.cat([batch.state, torch.zeros(len(rows), 1)], dim=1))


# --- T-REX ------------------------------------------------------------------------------------------------------------------


def linear_reward(action_dim: int = 1, sees_action: bool = False, kind: type[SnippetReward] = SnippetReward) -> SnippetReward:
    """R(s) = s exactly: hidden units relu(s) and relu(−s)."""
    model = kind(1, action_dim, generator(), RewardConfig(hidden=[2], nets=1), sees_action=sees_action)
    with torch.no_grad():
        model.nets[0][0].weight.copy_(torch.tensor([[1.0] + [0.0] * sees_action, [-1.0] + [0.0] * sees_action]))
        model.nets[0][2].weight.copy_(torch.tensor([[1.0, -1.0]]))
    return model


def states(*values: float) -> Batch:
    x = torch.tensor(values)[:, None]
    return Batch(x, torch.zeros_like(x), x, torch.zeros(len(values)), torch.zeros(len(values)))


def test_trex_cross_entropy_by_hand() -> None:
    """Two pairs of snippets of two steps: Σ R = 3 against 1, and −1 against 0."""
    model = linear_reward()
    loss = model.loss(model.theta(), torch.ones(2), states(1.0, 2.0, -1.0, 0.0), states(0.5, 0.5, 1.0, -1.0))
    first = -math.log(math.exp(3) / (math.exp(3) + math.exp(1)))
    second = -math.log(math.exp(-1) / (math.exp(-1) + math.exp(0)))
    assert float(loss) == pytest.approx((first + second) / 2, abs=1e-6)


def test_the_reward_of_waiting_is_that_of_the_place() -> None:
    model = linear_reward()
    waiting = states(0.7)._replace(state=torch.tensor([[0.7, 1.0]]))
    assert float(model.policy_reward(model.theta(), waiting)) == pytest.approx(0.7)


def test_pairs_are_better_before_worse_and_ties_are_none() -> None:
    demos = demonstrations((0.5, 0.0, -0.5), (0.1,) * 3, episodes=1, ranked=1)
    tied = replace(demos, rank=np.array([1, 2, 2]))
    assert {tuple(p) for p in ranked(demos).better_worse().tolist()} == {(0, 1), (0, 2), (1, 2)}
    assert {tuple(p) for p in ranked(tied).better_worse().tolist()} == {(0, 1), (0, 2)}


def test_snippets_stay_inside_their_trajectory() -> None:
    trajectories = Trajectories(states(*range(10)), torch.tensor([0, 4, 10]), torch.tensor([1.0, 0.0]))
    found = {tuple(trajectories.snippets(torch.tensor([1]), 3, generator_of(k)).state[:, 0].tolist()) for k in range(60)}
    assert found == {(4, 5, 6), (5, 6, 7), (6, 7, 8), (7, 8, 9)}


def generator_of(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- D-REX ------------------------------------------------------------------------------------------------------------------


def test_less_noise_ranks_higher_and_only_beyond_the_margin() -> None:
    demos = demonstrations((0.5,), (0.1,), episodes=20)
    clone = make_learner("bc", Line(), demos, small("bc"), 0)
    while clone.done < 200:
        clone.iterate()
    rollouts, steps = noisy_rollouts(Line(), clone.actor, 11, 10, seed=0, generator=generator())
    assert steps == 11 * 10 * STEPS == len(rollouts.batch.state)
    assert rollouts.worth.reshape(11, 10)[:, 0].tolist() == pytest.approx([-0.1 * k for k in range(11)])
    pairs = rollouts.better_worse(0.3)
    gap = rollouts.worth[pairs[:, 0]] - rollouts.worth[pairs[:, 1]]
    assert float(gap.min()) == pytest.approx(0.3, abs=1e-6)
    assert len(pairs) == 100 * sum(11 - k for k in range(3, 11))
    true_return = -(rollouts.batch.next_state - GOAL).abs().reshape(11, -1).sum(1) / 10
    assert all(a > b for a, b in pairwise(true_return[::5].tolist()))  # noise does make this clone worse


def test_noise_zero_is_the_policy_and_noise_one_forgets_it() -> None:
    demos = demonstrations((0.5,), (0.1,), episodes=5)
    actor = make_learner("bc", Line(), demos, small("bc"), 0).actor
    rollouts, _ = noisy_rollouts(Line(), actor, 2, 50, seed=0, generator=generator())
    half = 50 * STEPS
    with torch.no_grad():
        wanted = actor.mode(rollouts.batch.state)
    assert torch.allclose(rollouts.batch.action[:half], wanted[:half], atol=1e-6)
    assert float(rollouts.batch.action[half:].mean()) == pytest.approx(0.0, abs=0.1)
    assert float(rollouts.batch.action[half:].var()) == pytest.approx(1 / 3, abs=0.05)


def test_drex_takes_no_label() -> None:
    demos = demonstrations(**MIXED)
    learner = make_learner("d-rex", Line(), demos, small("d-rex"), 0)
    assert isinstance(learner, DrexLearner)
    assert not get_method("d-rex").needs_ranking
    learner.begin_segment(0)
    learner.iterate()
    assert learner.done == 1000 + 11 * 4 * STEPS  # its own rollouts count as steps too


# --- SSRR -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("truth", [Sigmoid(-2.0, 12.0, 0.4, 1.5), Sigmoid(-0.5, 30.0, 0.7, 0.1), Sigmoid(3.0, 5.0, 0.25, -1.0)])
def test_the_sigmoid_fit_finds_known_parameters(truth: Sigmoid) -> None:
    eta = np.linspace(0, 1, 41)
    assert fit_sigmoid(eta, truth(eta)) == pytest.approx(truth, rel=1e-2)


def test_the_sigmoid_fit_takes_noise_and_constants() -> None:
    eta = np.repeat(np.linspace(0, 1, 21), 5)
    truth = Sigmoid(-2.0, 12.0, 0.4, 1.0)
    found = fit_sigmoid(eta, truth(eta) + np.random.default_rng(0).normal(0, 0.2, len(eta)))
    assert np.abs(found(eta) - truth(eta)).max() < 0.2
    assert fit_sigmoid(eta, np.full(len(eta), 3.0))(eta) == pytest.approx(3.0)


def test_ssrr_regression_by_hand() -> None:
    """Snippet means 1.5 and −0.5 against targets 1 and 0: (0.25 + 0.25) / 2."""
    model = linear_reward(sees_action=True, kind=SsrrReward)
    assert isinstance(model, SsrrReward)
    loss = model.regression(model.theta(), states(1.0, 2.0, -1.0, 0.0), torch.tensor([1.0, 0.0]))
    assert float(loss) == pytest.approx(0.25)


def test_ssrr_shows_airls_policy_until_it_has_its_own() -> None:
    config = small("ssrr")
    learner = make_learner("ssrr", Line(), demonstrations((0.5,), (0.1,), episodes=5),
                           replace(config, noise=replace(config.noise, airl_steps=1500)), 0)
    assert isinstance(learner, SsrrLearner)
    learner.begin_segment(0)
    shown = []
    for _ in range(3):
        shown.append(learner.actor)
        learner.iterate()
    assert shown[0] is shown[1] is learner.first.actor
    assert shown[2] is learner.ppo.actor
    assert learner.done == 3000 + 11 * 4 * STEPS


def test_ssrrs_own_policy_starts_from_a_clone_where_the_first_did() -> None:
    config = small("ssrr")
    learner = make_learner("ssrr", Line(), demonstrations((0.5,), (0.1,), episodes=5),
                           replace(config, bc_warmup_steps=300, critic_warmup_iterations=9,
                                   noise=replace(config.noise, airl_steps=1000)), 0)
    assert isinstance(learner, SsrrLearner)
    learner.begin_segment(0)

    def off() -> float:
        return float((learner.actor.mode(learner.data.state) - learner.data.action).abs().mean())

    learner.iterate()
    assert learner.actor is learner.ppo.actor
    before = off()
    learner.iterate()
    assert off() < 0.5 * before


# --- curation by smoothness -------------------------------------------------------------------------------------------------


def test_arc_length_by_hand() -> None:
    """Amplitudes 1, ½, 0, with the last above 0.1 at index 1: one piece, 1 wide and ½ high. Nothing but 0 Hz: a flat line."""
    assert arc_length(np.array([2.0, 1.0, 0.0]), 0.1) == pytest.approx(-math.hypot(1.0, 0.5))
    assert arc_length(np.array([1.0, 0.0, 0.5]), 0.1) == pytest.approx(-(math.hypot(0.5, 1.0) + math.hypot(0.5, 0.5)))
    assert arc_length(np.array([1.0, 0.0, 0.0]), 0.1) == -1.0


def test_tremor_and_pauses_are_less_smooth_than_one_stroke() -> None:
    t = np.linspace(0, 1, 50)
    stroke = 30 * t**2 * (1 - t) ** 2  # the speed of a minimum-jerk reach
    tremor = stroke * (1 + 0.5 * np.sin(2 * np.pi * 12 * t))
    pause = np.concatenate([stroke[::2], np.zeros(10), stroke[::2]])
    assert smoothness(stroke, 0.05) > max(smoothness(tremor, 0.05), smoothness(pause, 0.05))
    assert smoothness(stroke, 0.05) == pytest.approx(smoothness(7 * stroke, 0.05))  # size and speed do not matter
    assert smoothness(np.zeros(50), 0.05) == -1.0


def test_steady_people_are_kept() -> None:
    demos = demonstrations((0.5, -0.5), (0.02, 1.0), episodes=20)
    score = trajectory_scores(demos, 0.05)
    assert np.median(score[:20]) > np.median(score[20:])
    config = small("rinse")
    learner = make_learner("rinse", Line(), demos, config, 0)
    kept = learner.confidence().reshape(-1, STEPS)
    assert torch.equal(kept.amax(1), kept.amin(1))
    assert int((kept[:, 0] > 0).sum()) == 10  # a quarter of 40
    assert int((kept[:20, 0] > 0).sum()) >= 9


# --- DWBC -------------------------------------------------------------------------------------------------------------------


def test_dwbc_losses_by_hand() -> None:
    """d = 0.8 on the expert's pair, 0.25 on another."""
    expert, other = logit(0.8), logit(0.25)
    loss = 0.5 * -math.log(0.8) - math.log(0.75) - 0.5 * -math.log(0.2)
    assert float(discriminator_loss(expert, other, 0.5)) == pytest.approx(loss, abs=1e-6)
    on_expert, on_other = policy_weights(expert, other, DwbcSettings())
    assert float(on_expert) == pytest.approx(7.5 - 0.5 / (0.8 * 0.2))
    assert float(on_other) == pytest.approx(1 / 0.75)
    assert float(policy_weights(expert, logit(0.99), DwbcSettings())[1]) == pytest.approx(10.0)  # d is cut at 0.9


def test_dwbc_takes_the_best_ranked_as_the_experts() -> None:
    demos = demonstrations((0.5, 0.0, -0.5), (0.1,) * 3, episodes=4, ranked=2)
    assert expert_episodes(demos, 0.2).tolist() == [0]
    assert expert_episodes(demos, 0.5).tolist() == [0, 1, 4]
    assert expert_episodes(replace(demos, rank=np.minimum(demos.rank, 2)), 0.4).tolist() == [0, 1, 4, 5, 8, 9]


# --- on the shared trainer --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", BASELINES)
def test_a_resumed_run_is_the_same_as_a_whole_one(method: str, tmp_path: Path) -> None:
    """SSRR is cut once while AIRL runs and once after."""
    demos = demonstrations(**MIXED, ranked=2)
    less = {"noise.levels": 3, "noise.cloning_steps": 50, "noise.airl_steps": 2000, "reward.steps": 10, "classifier.steps": 10}
    config = method_config(method, changes={**read_part(method, {**SMALL, **less}), "checkpoint_every": 1})
    cuts = (50, 100, 150) if get_method(method).offline else (1000, 3000, 5000)

    def run(out: Path, steps: int) -> None:
        train(Line(), demos, method, config, seed=0, out=out, steps=steps)

    run(tmp_path / "whole", cuts[-1])
    for steps in cuts:
        run(tmp_path / "cut", steps)
    for name in ("metrics.csv", "confidence.parquet", "checkpoint.safetensors", "policy/policy.safetensors"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    expected = {"config.yaml", "metrics.csv", "confidence.parquet", "checkpoint.safetensors", "policy", "tensorboard"}
    assert expected <= set(os.listdir(tmp_path / "whole"))
    assert load_policy(tmp_path / "whole" / "policy").card.method == method


@pytest.mark.parametrize("method", ["2iwil", "ic-gail", "t-rex", "dwbc"])
def test_methods_that_need_a_ranking_say_so(method: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"0 ranked episodes; '{method}' needs at least two"):
        train(Line(), demonstrations(**MIXED), method, small(method), seed=0, out=tmp_path / "run", steps=100)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("method", ["d-rex", "ssrr", "rinse"])
def test_methods_without_labels_ignore_the_ranking(method: str) -> None:
    """The same weights come out whatever the ranks are."""
    outcomes = []
    for ranks in (0, 2):
        learner = make_learner(method, Line(), demonstrations(**MIXED, ranked=ranks), small(method), 0)
        learner.begin_segment(0)
        learner.iterate()
        outcomes.append(learner.actor.net[0].weight)
    assert torch.equal(*outcomes)


def test_gail_and_ic_gail_share_the_network() -> None:
    assert issubclass(IcGail, Gail)
