"""The outlines of regions in a grid of cells, as paths of SVG.

An outline is found by walking along the sides between a cell of the region and one outside, with the region on the
right, and is smoothed over a few cells. So a line is true to about half a cell.
"""

from collections.abc import Collection, Iterator

SHARPNESS = 10  # steps of a coordinate in one cell: coordinates are whole numbers
PASSES = 4  # of smoothing
UNDECIDED, NOTHING = ".", " "
RING = 2  # cells around the grid

Corner = tuple[int, int]
Grid = list[str]


def framed(cells: str, points: int) -> Grid:
    """The rows of the grid from top to bottom, its edge repeated once, in a ring of nothing.

    So outlines run on beyond the picture and close outside of it.
    """
    lines = [cells[start : start + points] for start in range(0, points * points, points)][::-1]
    lines = [f"{NOTHING}{line[0]}{line}{line[-1]}{NOTHING}" for line in (lines[0], *lines, lines[-1])]
    ring = NOTHING * (points + 2 * RING)
    return [ring, *lines, ring]


def labels(cells: str) -> list[int]:
    """The classes in the cells."""
    return sorted(int(label) for label in set(cells) - {UNDECIDED, NOTHING})


def traced(grid: Grid, inside: str, outside: Collection[str]) -> list[list[Corner]]:
    """The chains of corners between cells of `inside` and cells of `outside`; closed ones end where they begin."""
    following: dict[Corner, list[Corner]] = {}
    for start, end in sides(grid, inside, outside):
        following.setdefault(start, []).append(end)
    ends = {end for after in following.values() for end in after}
    starts = [corner for corner in following if corner not in ends]
    chains = []
    while following:
        chain = [starts.pop() if starts else next(iter(following))]
        while chain[-1] in following:
            chain.append(turned(chain, following))
        chains.append(chain)
    return chains


def sides(grid: Grid, inside: str, outside: Collection[str]) -> Iterator[tuple[Corner, Corner]]:
    """The directed sides of cells, with the region on the right. No cell of a region lies in the outermost ring."""
    for y, line in enumerate(grid):
        x = line.find(inside)
        while x >= 0:
            if grid[y - 1][x] in outside:
                yield (x, y), (x + 1, y)
            if line[x + 1] in outside:
                yield (x + 1, y), (x + 1, y + 1)
            if grid[y + 1][x] in outside:
                yield (x + 1, y + 1), (x, y + 1)
            if line[x - 1] in outside:
                yield (x, y + 1), (x, y)
            x = line.find(inside, x + 1)


def turned(chain: list[Corner], following: dict[Corner, list[Corner]]) -> Corner:
    """The next corner; where two cells touch at a corner only, the turn to the right, which keeps them apart."""
    here = chain[-1]
    choices = following[here]
    if len(choices) > 1 and len(chain) > 1:
        across, down = here[0] - chain[-2][0], here[1] - chain[-2][1]
        right = (here[0] - down, here[1] + across)
        choices.sort(key=lambda corner: corner == right)
    after = choices.pop()
    if not choices:
        del following[here]
    return after


def smoothed(chain: list[Corner]) -> list[tuple[float, float]]:
    """The middles of the sides, each averaged with its neighbours a few times."""
    closed = chain[0] == chain[-1]
    points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in zip(chain, chain[1:], strict=False)]
    for _ in range(PASSES):
        before, after = [points[-1], *points[:-1]], [*points[1:], points[0]]
        if not closed:
            before[0], after[-1] = points[0], points[-1]
        points = [
            ((a + 2 * c + e) / 4, (b + 2 * d + f) / 4)
            for (a, b), (c, d), (e, f) in zip(before, points, after, strict=True)
        ]
    return points


def path(chains: list[list[Corner]], closed: bool) -> str:
    """The chains as one path of whole numbers, each relative to the one before."""
    words = []
    for chain in chains:
        points = [(round(x * SHARPNESS), round(y * SHARPNESS)) for x, y in smoothed(chain)]
        steps = " ".join(f"{c - a} {d - b}" for (a, b), (c, d) in zip(points, points[1:], strict=False))
        ending = "z" if closed or chain[0] == chain[-1] else ""
        words.append(f"M{points[0][0]} {points[0][1]}l{steps}{ending}" if steps else "")
    return "".join(words).replace(" -", "-")
