"""What the paper reports, to stand beside what is measured here: (mean, standard deviation) or (mean, None)."""

from __future__ import annotations

Number = tuple[float, float | None]

RETURNS: dict[str, dict[str, Number]] = {
    "reacher": {"cail": (-7.816, 1.518), "2iwil": (-23.055, 3.803), "ic-gail": (-55.355, 5.046), "airl": (-25.922, 2.337),
                "gail": (-60.858, 3.299), "t-rex": (-66.371, 21.295), "d-rex": (-78.102, 14.918), "ssrr": (-70.044, 14.735),
                "oracle": (-4.312, None)},
    "ant": {"cail": (3825.644, 940.279), "2iwil": (3473.852, 271.696), "ic-gail": (1525.671, 747.884),
            "airl": (3016.134, 1028.894), "gail": (998.231, 387.825),
            "t-rex": (-1867.930, 318.339), "d-rex": (-2467.779, 135.175), "ssrr": (-105.346, 210.837),
            "oracle": (4787.233, None)},
    "panda": {"cail": (-62.946, 50.644), "2iwil": (-120.622, 122.787), "ic-gail": (-349.511, 342.597),
                    "airl": (-236.953, 230.495), "gail": (-527.604, 452.379), "t-rex": (-1933.944, 380.834),
                    "d-rex": (-1817.239, 481.672), "ssrr": (-2077.616, 58.764), "oracle": (-35.362, None)},
    "ur5e": {"cail": (-34.330, 1.242), "2iwil": (-52.445, 7.182), "ic-gail": (-550.235, 657.838), "airl": (-597.819, 752.149),
             "gail": (-532.854, 664.415), "t-rex": (-2003.672, 32.771), "d-rex": (-1538.100, 703.266),
             "ssrr": (-2154.214, 168.086), "oracle": (-31.056, None)},
}
"""The converged expected return. The paper's `ur5e` was a real arm."""

SUCCESS: dict[str, dict[str, Number]] = {
    "panda": {name: (share, None) for name, share in {
        "cail": 1.0, "2iwil": 1.0, "ic-gail": 0.81, "airl": 0.87, "gail": 0.31, "t-rex": 0.0, "d-rex": 0.0, "ssrr": 0.0}.items()},
    "ur5e": {name: (share, None) for name, share in {
        "cail": 1.0, "2iwil": 0.83, "ic-gail": 0.07, "airl": 0.33, "gail": 0.2, "t-rex": 0.0, "d-rex": 0.0, "ssrr": 0.0}.items()},
}
"""Share of 100 trials."""

_RATIOS = ("1%", "2%", "5%", "10%", "20%", "50%", "100%")
LABEL_RATIO: dict[str, dict[str, Number]] = {
    at: {"2iwil": a, "ic-gail": b, "t-rex": c, "cail": d} for at, a, b, c, d in zip(
        _RATIOS,
        [(-33.5, 4.9), (-34.4, 3.2), (-23.3, 4.1), (-27.7, 6.7), (-24.5, 3.0), (-30.0, 2.7), (-25.2, 6.9)],
        [(-56.4, 10.1), (-53.7, 4.0), (-61.0, 5.0), (-54.1, 6.0), (-58.8, 3.4), (-44.6, 8.3), (-57.1, 3.7)],
        [(-83.7, 18.6), (-85.8, 15.3), (-82.3, 10.2), (-73.2, 21.6), (-91.8, 15.4), (-38.6, 35.8), (-27.2, 37.2)],
        [(-8.0, 2.4), (-8.7, 3.6), (-7.3, 2.0), (-8.1, 2.9), (-7.1, 1.7), (-7.5, 2.3), (-7.8, 3.0)], strict=True)}
"""Reacher, by the share of the demonstrations that is ranked."""
