//go:build race

package random

// sequencesEach: the race detector makes a sequence four times as slow, and looks for races, which every sequence has
// the same chance of. The run without it plays enough sequences to judge what they reach.
const sequencesEach, judgesReach = "100", false
