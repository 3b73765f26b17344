//go:build !race

package random

// sequencesEach is how many sequences are played of each kind, in two minutes of one core.
const sequencesEach = "2000"
