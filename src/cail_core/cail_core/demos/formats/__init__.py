"""Demonstrations from and to other tools' files. Each format is one file with a reader, a writer, or both."""
