//go:build race

package random

// sequencesEach: the race detector makes a sequence four times as slow.
const sequencesEach = "300"
