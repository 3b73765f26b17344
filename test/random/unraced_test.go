//go:build !race

package random

import "strconv"

// sequencesEach is how many sequences are played of each kind, in a minute of one core: as many as a known defect may
// survive, so that TestKnownDefectsAreFound shows what the number is worth.
var sequencesEach = strconv.Itoa(most)

const judgesReach = true
