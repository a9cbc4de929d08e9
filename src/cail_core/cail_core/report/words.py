"""The report in words: what came of it, whom it trusted, what to do next."""

from __future__ import annotations

import shlex
from html import escape
from importlib.metadata import entry_points

from cail_core.report.findings import Findings
from cail_core.report.svg import number
from cail_core.stress.findings import sentences

UNKNOWN = "unknown"
"""The demonstrator of an import that names none."""
LISTED = 8
"""Episodes that are named one by one."""


def percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def headline(found: Findings) -> str:
    run, result = found.subject, found.result
    held = found.held_out.get(run.name)
    if held is not None and held.episodes:
        return f"{run.method} on {run.task}: an action error of {held.error:.2f} on demonstrations held out"
    if result is None:
        return f"{run.method} on {run.task}: not evaluated"
    if found.has_success:
        return f"{run.method} on {run.task}: {int(result.success.sum())} of {len(result.success)} episodes succeed"
    return f"{run.method} on {run.task}: a mean return of {number(result.mean)}"


def summary(found: Findings) -> list[str]:
    """Paragraphs, the most important first."""
    trusted = " ".join(filter(None, (_trust(found), _ranking(found), _another_way(found))))
    said = [_result(found), _others(found), _transfer(found), trusted]
    return [text for text in said if text]


def _result(found: Findings) -> str:
    run, result = found.subject, found.result
    data = run.method
    if found.dataset is not None:
        n, people = found.dataset.episodes, len(found.people)
        data += (f" was trained on {n} demonstrations by {people} demonstrator{'s' * (people != 1)}, "
                 f"{found.ranked_episodes} of them ranked.")
    else:
        data += " was trained on demonstrations that are not here."
    held = found.held_out.get(run.name)
    if held is not None and held.episodes:
        low, high = held.interval()
        data += (f" There is no environment to play in. On {len(held.episodes)} trusted demonstrations that were held out, "
                 f"policies trained the same way miss the action by {held.error:.2f} of its spread ({low:.2f} … {high:.2f}; "
                 "always giving the mean action misses it by 1).")
    if held is not None and held.pairs is not None:
        data += (f" Of {held.pairs[1]} pairs of ranked episodes whose ranks were held out, the confidence puts {held.pairs[0]} "
                 "in the order given.")
    if result is None:
        return data
    low, high = result.mean_interval()
    text = f"{data} In {len(result.returns)} fresh episodes its policy "
    if found.has_success:
        a, b = result.success_interval()
        text += f"succeeded {percent(result.success_rate)} of the time (95% interval {100 * a:.0f}–{100 * b:.0f}%) and "
    text += f"reached a mean return of {number(result.mean)} ({number(low)} … {number(high)})."
    best = found.best_person
    if best is not None:
        who, mean = best
        close = "on a par with" if low <= mean <= high else "better than" if result.mean > mean else "short of"
        text += f" That is {close} the best demonstrator, {who} ({number(mean)})"
        text += f"; all demonstrations together average {number(found.mean_return)}." if found.mean_return is not None else "."
    return text


def _others(found: Findings) -> str:
    parts = []
    for run in found.runs[1:]:
        played = found.played.get(run.name)
        if played is not None:
            success = f"{percent(played.evaluation.success_rate)} success, " if found.has_success else ""
            parts.append(f"{run.name} {success}return {number(played.evaluation.mean)}")
    for name, played in found.references.items():
        success = f"{percent(played.evaluation.success_rate)} success, " if found.has_success else ""
        parts.append(f"{name} {success}return {number(played.evaluation.mean)}")
    return f"For comparison: {'; '.join(parts)}." if parts else ""


def _transfer(found: Findings) -> str:
    """What makes it fail, or that nothing did."""
    if not found.stress:
        return ""
    return "When the arm differs from the simulator, it " + "; it ".join(sentences(found.stress)[1:]) + "."


def _trust(found: Findings) -> str:
    if found.trusting is None or not found.people:
        return ""
    of = "" if found.trusting is found.subject else f"{found.trusting.name} "
    most, least = found.people[0], found.people[-1]
    text = f"{of}trusted {most.name} most (mean confidence {most.confidence:.2f}, where 1 is average)"
    text += f" and {least.name} least ({least.confidence:.2f})." if len(found.people) > 1 else "."
    if len(found.people) == 1 and most.name == UNKNOWN:
        text = f"{of}learned a confidence for every demonstration; who gave them is not known."
    if found.correlation is not None:
        agrees = "agrees closely" if found.correlation >= 0.8 else "agrees roughly" if found.correlation >= 0.4 else (
            "hardly agrees" if found.correlation > -0.2 else "disagrees")
        text += (f" Its confidence {agrees} with the true returns, which it never saw: "
                 f"rank correlation {found.correlation:.2f} over {len(found.confidence_of_episode)} episodes.")
    return text[0].upper() + text[1:] if of else f"It {text}"


def _ranking(found: Findings) -> str:
    if found.pairs is None or not found.pairs[1]:
        return ""
    return f"Of the {found.pairs[1]} ranked pairs of episodes it puts {found.pairs[0]} in the order given."


def _another_way(found: Findings) -> str:
    left = found.trusting.another_way if found.trusting is not None else []
    if not left:
        return ""
    which, more = ", ".join(map(str, left[:LISTED])), len(left) - LISTED
    return (f"{len(left)} trusted demonstration{'s' * (len(left) != 1)} (episode{'s' * (len(left) != 1)} {which}"
            f"{f' and {more} more' if more > 0 else ''}) go another way than most, and the policy did not learn from them.")


def next_steps(found: Findings) -> list[tuple[str, str]]:
    """What a person could do now: a sentence and a command (or nothing)."""
    run, made = found.subject, []
    task = "" if found.without_environment else f"--task {run.task} "
    folder = shlex.quote(str(run.folder))
    demos = shlex.quote(str(found.dataset.root)) if found.dataset is not None else "D"
    if run.policy is None:
        made.append(("No policy yet: let the training go on.",
                     f"cail train {task}--demos {demos} --method {run.method} --seed {run.seed} --out {folder}"))
    if found.dataset is None:
        made.append(("Say where the demonstrations are, to see whom the run trusted.", f"cail report {folder} --demos D"))
    result = found.result
    weak = result is not None and found.has_success and result.success_rate < 0.95
    if weak and found.dataset is not None and 0 < found.ranked_episodes < 0.1 * found.dataset.episodes:
        made.append((f"{100 * (1 - (result.success_rate if result else 0)):.0f}% of the episodes fail. Rank more demonstrations "
                     f"({found.ranked_episodes} of {found.dataset.episodes} are) and train again into a new folder.",
                     f"cail demos rank {demos} --by return --fraction 0.1"))
    elif weak:
        made.append(("Too many episodes fail for the arm: train longer, or compare with another method.",
                     f"cail train {task}--demos {demos} --method cail --out {folder}-cail"))
    if found.correlation is not None and found.correlation < 0.4:
        made.append(("The confidence does not follow the quality of the demonstrations: look at the most trusted ones and check "
                     "the ranks you gave.", f"cail demos info {demos} --episodes"))
    if found.least:
        part = found.least[0]
        made.append((f"See for yourself why episode {part.episode} is trusted least; delete it if it is a recording fault.",
                     f"cail demos show {demos} {part.episode} --run {shlex.quote(str((found.trusting or run).folder))}"))
    watchable = "watch" in {entry.name for entry in entry_points(group="cail.commands")} and not found.without_environment
    if watchable and run.policy is not None:
        made.append(("Watch the policy before anyone stands beside the arm.",
                     f"cail watch --task {run.task} --policy {folder}/policy"))
    if result is not None and not weak:
        made.append(("Prove it on more episodes and on another seed before you rely on it.",
                     f"cail eval --policy {folder}/policy --episodes 500 --seed 1"))
    if found.stress and run.policy is not None and not run.policy.card.stress["moved"]:
        made.append(("Find out how far each condition may go and what it steers by, before an arm moves.",
                     f"cail stress --policy {folder}/policy"))
    if run.policy is not None and run.method != "bc" and len(found.runs) == 1:
        made.append(("Compare with cloning all demonstrations alike.",
                     f"cail train {task}--demos {demos} --method bc --out {folder}-bc\n"
                     f"cail report {folder} {folder}-bc --out report.html"))
    return made


def paragraphs(texts: list[str]) -> str:
    return "".join(f'<p class="{"lead" if i == 0 else "more"}">{escape(text)}</p>' for i, text in enumerate(texts))
