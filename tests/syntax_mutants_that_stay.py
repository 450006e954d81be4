"""Drawn bugs that no test can notice, each with the reason why it cannot change an answer (`syntax_mutants.py`)."""

STAYS: dict[str, str] = {
    "boundflow/analysis/audit.py Auditor.audit: holes = torch.isnan(x[torch.from_numpy(which).to(x.device)]).flatten(1).any(1).cpu().numpy() -> holes = torch.isnan(x[torch.from_numpy(which).to(x.device)]).flatten(1).all(1).cpu().numpy()": "In which order inputs are asked, and so which of them share a batch: each is answered as alone.",
    "boundflow/analysis/checklist.py ClauseTerms.left: stays &= np.cumsum(stays, 1) <= self.budget -> stays &= np.cumsum(stays, (-1)) <= self.budget": "The last axis of an array with two is axis 1.",
    "boundflow/analysis/ensemble.py Ensemble.predict: chunk: int = 256, -> chunk: int = (512),": "How many inputs are asked at once changes time and memory, and no answer.",
    'fullcert/auditing.py by_source: "term": float(sums[place]), -> "term": (sums[place]),': "A float of numpy is a float, and is written as one.",
    "fullcert/baselines/likelihood.py Shifts.of_bag: whole = [int(probability * denominator) for probability in one] -> whole = [(probability * denominator) for probability in one]": "A fraction times a multiple of its denominator is whole: int() changes its type and not its value.",
    'fullcert/dialects.py is_ascii: return all(piece.isascii() for piece in iter(partial(file.read, 2**20), b"")) -> return all(piece.isascii() for piece in iter(partial(file.read, 2*20), b""))': "A file is read in pieces, and whether all of them are ASCII does not go by their size.",
    "fullcert/encoding.py Target.encoded: unknown = sorted(set(words.tolist()) - set(self.classes)) -> unknown = (set(words.tolist()) - set(self.classes))": "The order of words in a sentence of refusal.",
    "fullcert/evaluation.py : RADII = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0) # times the radius of the run -> RADII = (0.1, 0.3, 1.0, 3.0, 10.0, (60.0), 100.0) # times the radius of the run": "Which radii a report asks about: each is answered at its own.",
    "fullcert/missing_cells.py _given: if not abs(number) <= LARGEST: -> if not abs(number) < LARGEST:": "A value of exactly the largest number is refused instead of taken.",
    "fullcert/tables.py text_cells: if len(header) * len(numbered) > unpacking.VALUES: -> if len(header) * len(numbered) >= unpacking.VALUES:": "A table of exactly 2^28 cells is refused instead of read.",
    "fullcert/threats.py parse_tolerances: if share and number and not LEAST <= number <= SCALED: -> if share and number and not LEAST <= number < SCALED:": "A share of exactly the largest number is refused instead of taken.",
    'fullcert/auditing.py suspected: "deviations": float(scores.surprise[row]), -> "deviations": (scores.surprise[row]),': "A float of numpy is a float, and is written as one.",
    "fullcert/sklearn/answers.py bounded_probabilities: return low.clamp(0.0, 1.0).numpy(), high.clamp(0.0, 1.0).numpy() -> return low.clamp(0.0, 1.0).numpy(), (high).numpy()": "The rules of sigmoid and softmax end at 1 themselves: the clamp says so once more.",
}
