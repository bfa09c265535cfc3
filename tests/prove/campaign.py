"""Fit generated problems and hold every printed claim against feasible points of other sources.

``python -P tests/prove/campaign.py --problems 2000 --seed 0 --jobs 2``. The exit code is 1 if a claim is
false or the product raised something that is none of its errors. ``--write PAGE`` puts the counts into a
page.
"""

import argparse
import dataclasses
import multiprocessing
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from page_outputs import write_between  # noqa: E402

CLAIMS = ("certified", "certified_within", "at_rounding", "uncertified", "unproved", "contradiction")


def one_problem(seed):
    """The outcome of a seed as plain values."""
    from prove.check import Outcome, check
    from prove.draws import draw

    try:
        drawn = draw(seed)
        outcome = check(drawn)
    except Exception as error:  # of the campaign itself: no problem may end it
        outcome = Outcome(seed, f"seed {seed}", exceptions=[f"campaign: {type(error).__name__}: {error}"])
    return dataclasses.asdict(outcome)


def outcomes(seeds, jobs):
    """In no order, each as soon as it is known."""
    if jobs == 1:
        yield from map(one_problem, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, maxtasksperchild=500) as pool:
        yield from pool.imap_unordered(one_problem, seeds, chunksize=4)


def counts(found):
    total = {
        "problems": len(found),
        "refused": sum(bool(one["refused"]) for one in found),
        "refused_fits": sum(one["refused_fits"] for one in found),
        "exceptions": sum(len(one["exceptions"]) for one in found),
        "endless": sum(len(one["endless"]) for one in found),
        "claims": dict(Counter(claim for one in found for _, claim in one["claims"])),
        "by_scheme": {},
        "kinds": dict(Counter(false["kind"] for one in found for false in one["false"])),
    }
    total["fits"] = sum(total["claims"].values())
    made = Counter((scheme, claim) for one in found for scheme, claim in one["claims"])
    wrong = {(one["seed"], false["scheme"], false["claim"]) for one in found for false in one["false"]}
    false = Counter((scheme, claim) for _, scheme, claim in wrong)
    total["false"] = len(wrong)
    for scheme in sorted({scheme for scheme, _ in made}):
        total["by_scheme"][scheme] = {c: [made[scheme, c], false[scheme, c]] for c in CLAIMS}
    return total


def table(total):
    lines = [
        f"{total['problems']:,} generated problems, {total['refused']:,} of them refused; "
        f"{total['fits']:,} fits. False: **{total['false']:,}**.",
        "",
        f"| scheme | {' | '.join(c.replace('_', ' ') for c in CLAIMS)} | false |",
        "|---|" + "---:|" * (len(CLAIMS) + 1),
    ]
    for scheme, own in total["by_scheme"].items():
        cells = [f"{own[c][0]:,}" for c in CLAIMS]
        lines.append(f"| {scheme} | {' | '.join(cells)} | {sum(own[c][1] for c in CLAIMS):,} |")
    return "\n".join(lines) + "\n"


def _print_findings(found):
    from prove.check import False_

    for one in found:
        texts = [False_(**false).text for false in one["false"]]
        texts += [f"seed {one['seed']}: exception: {text}" for text in one["exceptions"]]
        texts += [f"seed {one['seed']}: {scheme}: does not end" for scheme in one["endless"]]
        if texts:
            print("\n".join([*texts, f"    {one['text']}"]))


def main():
    """Exit code 1 if anything is false or was raised that should not have been."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0, help="of the first problem")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--write", type=Path, help="put the counts into this page")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    seeds = range(arguments.seed, arguments.seed + arguments.problems)
    found = sorted(outcomes(seeds, arguments.jobs), key=lambda one: one["seed"])
    total = counts(found)
    _print_findings(found)
    print(f"\n{table(total)}")
    for kind, number in sorted(total["kinds"].items()):
        print(f"{number:6} {kind}")
    print(
        f"{total['refused_fits']} fits refused, {total['exceptions']} exceptions, {total['endless']} that do "
        f"not end; {time.perf_counter() - begin:.0f} s"
    )
    if arguments.write is not None:
        write_between(arguments.write, "prove", table(total))
    return 1 if total["false"] or total["exceptions"] else 0


if __name__ == "__main__":
    sys.exit(main())
