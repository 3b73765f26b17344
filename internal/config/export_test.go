package config

// Meanings are the meanings of the keys in meanings.txt.
func Meanings() map[string]string { return readMeanings() }
