"""Numbers that were tuned, each with what it was measured on, where it was. None decides whether a bound is true.

For a trial, set one with ``monkeypatch.setattr`` in the module that uses it: every choice is sound.
"""

# --- which of two bounds is taken ---

# Rows cancel in later steps and intervals do not, so in a sum over samples the interval of a touched sample must be
# shorter than its rows by this factor to replace them. Half-moons: with 0.9 flipped labels lose; with 0.65 features
# moved far win (k = 10, epsilon 0.2: from 78.2 to 90.4) and five flipped labels lose 0.2 point.
WORTH_AN_INTERVAL = 0.65
# The ends of a product of test inputs by sign are computed where they could narrow it by this share of its width.
# Two-Moons at epsilon 0.1 with bumps of width 0.2: from 0 to 73 % certified.
WORTH_ENDS = 0.02
# And where the product has no more than so many weights by sample (a head has few outputs); not measured.
MOST_ENDS = 2**24

# Multiplications up to which the probabilities of three and more classes get a support; above, they have the interval
# of the logits' bounds. Certified accuracy is the same with and without: MNIST on 32 components, flipped labels; digits
# with 3 of them (67.4), in 14 s of a core instead of 30.
CHEAP_SUPPORT = 2**33

# Inner terms of a product whose deviations are bounded together (`products_of_deviations.py`): of few there is little
# to gain, and of many the cubes of their number, one for each line, cost more than the support.
FEWEST_TOGETHER, MOST_TOGETHER = 32, 256

# --- how much is held at a time: chosen for caches and memory, not for tightness ---

# Numbers at a time when a support looks through an expansion: about a second-level cache, or enough work for a GPU.
SUPPORT_CHUNK, SUPPORT_CHUNK_FACTORS, SUPPORT_CHUNK_CUDA = 2**18, 2**19, 2**27
# Numbers whose moduli are written out at a time to be added up, on a CPU: 1160 x 40 x 128 in float64 take 5.5 ms with
# 2^17, 7 with 2^20, 32 at once, and 22 as a norm.
MODULI_WRITTEN_OUT = 2**17
# Numbers of a function of sets up to which the lines and intervals of both states are looked at together: few numbers
# take as long as their launches, and many take four times the memory. Four steps on MAGIC: 81 looks instead of 193.
STATES_TOGETHER = 2**17
# Elements at a time: fewer would read the expansion too often.
FEWEST_ELEMENTS = 64
# Multiplications from which it pays to look for symbols that no element has, and elements from which a GPU is waited
# for to know: 4,096 of them over 1,666 derived symbols and 155,000 deep ones take 35 ms of an H200.
LOOK_FOR_ZEROS, FEW_ELEMENTS = 2**22, 2**12
# Elements of a first factor expanded at a time, for the same reason.
FACTOR_LINES = 256
# Numbers (elements x deep rows) from which a product is streamed (`streaming.py`): below, one chunk is as fast.
STREAM_FROM = 2**24
# Numbers of a block of terms, in a cache of a CPU or on a GPU, and deep coefficients of a first factor held at a time.
STREAM_BLOCK, STREAM_BLOCK_CUDA, STREAM_LINES, STREAM_LINES_CUDA = 2**18, 2**28, 2**24, 2**29
# Deep coefficients of lines that are kept, in float32: no more than a stream of a first factor would take.
KEPT_NUMBERS = 2**31
# Deep coefficients of a second factor that are put in the order of owners at a time.
STREAM_COPIED = 2**28
# Coefficients of a stream from which the kernel of a processor is worth half a second of a compiler, once in a process.
WORTH_A_COMPILER = 2**22
# Terms written out at a time to find thresholds on a GPU.
WRITTEN_TERMS = 2**28
# A threshold is that of every 16th owner, or of more, so that it has rank 16 or more among 512 or more. Half-moons with
# 1000 samples and k = 133: supports longer by 1.2 % with rank 9 among 63.
THRESHOLD_STRIDE, FEWEST_RANKS, FEWEST_SAMPLED = 16, 16, 512
# The share of a support that may be paid for float32; above, it is computed in float64.
MOST_PAYMENT = 2e-3
# Numbers of the matrices of lines whose norms are bounded at a time.
MATRICES_AT_A_TIME, MATRICES_AT_A_TIME_CUDA = 2**20, 2**28
# Second factors that stand ready for the next piece of a batch: together about as large as the expansion itself.
SECOND_FACTORS = 8
# Inner terms of a product whose first factor has deep rows, too: a kernel is unrolled over them.
MOST_MIXED = 16
# Multiplications from which radii are computed in bfloat16 on a GPU (`refinements/upper_products.py`).
LARGE_PRODUCT = 2**28
# Terms of a sum over samples held at once, of which there are about twenty tensors.
SUM_TERMS, SUM_TERMS_CUDA = 2**20, 2**24
# Numbers of the state of an optimizer that a reduction works on at a time.
REDUCTION_BLOCK, REDUCTION_BLOCK_CUDA = 2**20, 2**27
# What lives at a time, in copies (`needed_memory.py`): of the expansion over symbols of samples, over error rows, of
# an activation of a sample, in rules and for the backward pass, and of what a touched sample adds to the gradients.
# Resident memory of 64-10 with flipped labels and of 200-10-1 with moved inputs, two to six steps: 6.5 to 8, 4.5 to 5,
# 4 to 26, and 14. On a GPU no memory is left in pieces: of activations, half-moons and MAGIC took 2 to 3 there.
# And what a step holds of a row for each scalar, whatever the order: gradients, and parameters with their new rows.
# 240-10-1 with moved images, three steps of order 1, 2 and 3: 10.8, 16.8 and 17.1 such rows in all.
COPIES_OF_OWNED_ROWS, COPIES_OF_OWNED_ROWS_CUDA, COPIES_OF_ERROR_ROWS, COPIES_IN_A_STEP = 7, 3, 5, 6
COPIES_OF_AN_ACTIVATION, COPIES_OF_AN_ACTIVATION_CUDA, COPIES_OF_AN_EXCESS = 26, 3, 14
# Bytes for each of the `STREAM_LINES_CUDA` numbers of a first factor: float64 twice, and float32 by owner.
BYTES_OF_A_STREAM = 20
# Rows of samples are kept where pieces of so many samples fit beside them: with fewer, a step takes too long.
FEWEST_SAMPLES = 16
# Bytes of the largest tensor of a piece on a CPU, where a batch would have so many times as much. Half-moons, k = 200,
# cut to 900 samples, a step: 9.5 ms of a core for each sample with pieces of 120 MB, 16 with 24 MB, 11 with 300.
PIECE, WORTH_PIECES = 120 * 2.0**20, 2
# A run that would take this much more than its memory is refused; the parts of the estimate are not better known.
MEMORY_SLACK = 1.3
# And none is refused for less than this: torch and Python take as much by themselves.
LEAST_MEMORY = 2.0**26
# Steps on intervals from which compiling them pays. 2-20-1, batch 100: 2.5 ms a step by the rules and 0.2 ms compiled,
# which takes 20 to 25 s of a core where nothing was compiled before, and 8 s where the files of the compiler are there.
COMPILED_STEPS = 10_000
# The same on zonotopes, which take 20 ms a step by the rules.
COMPILED_ZONOTOPE_STEPS = 3000
# Products of a compiled step on a CPU with fewer columns than these, and as many lines and so many inner terms, are
# written the other way round. 100 x 784 times 784 x 10: 37 us of a core, and 23 that way; with ten terms no gain.
MANY_COLUMNS, MANY_TERMS = 16, 64
# Numbers of a result of a recorded step up to which it is copied out together with others: a launch takes as long as to
# copy some of these. 784-10-10-1 on an H200: 0.18 ms instead of 0.20.
SMALL_RESULT = 2**16
# Parameters up to which steps are so short on a GPU that waiting for each would be felt.
SMALL = 2**20
# Terms of a group when the largest of many are found on a processor, and how many are many.
GROUP, MANY = 16, 4096
# Runs of consecutive numbers that are compared one by one; more of them as tables.
FEW_RUNS = 8
# Batches whose rows are remembered: the pieces of one batch come back in full-batch training.
BATCHES_KEPT = 63
# Bytes that certified training may take, unless told otherwise.
MEMORY = 8 * 2.0**30
# Bytes that rows of test inputs may take: a row a feature for small inputs, none for images.
INPUT_ROWS = 2**28
# Rows for each scalar of a set of models from which answers go through derived symbols. Adult with unknown categories,
# 64,668 rows for 106 scalars, 500 answers: 0.7 s instead of 6.0. Below a few rows a scalar there is nothing to gain.
DERIVED_FROM = 4
