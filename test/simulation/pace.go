package simulation

import (
	"time"
)

// pace is how fast a world lives. In a slow world as much happens as in a quick one, within hours: pauses, outages and
// the time of the messages are many times longer, so that questions and publishings are used up, backoffs reach their
// last step, and receipts and the archive expire. The coordinators' schedules are slower too: what nobody waits for
// costs most of the time of a run.
type pace struct {
	// times is how much longer everything is than in a quick world.
	times int
	// look is how often the world looks whether all is final, for healing at most.
	look, healing time.Duration
}

// The paces. In a quick world a producer is asked 15 times by default, five minutes apart at the end, and a message of
// a stalled route waits for two minutes. In a slow one a seed may draw eight questions, hours apart.
var (
	quick  = pace{times: 1, look: 10 * time.Second, healing: 90 * time.Minute}
	slowly = pace{look: 2 * time.Minute, healing: 48 * time.Hour}
)

// drawPace draws the pace of a world, unless the options say how many times longer everything is.
func drawPace(c Choices, times int) pace {
	if times == 0 && c.Intn("slow", 2) == 1 {
		times = []int{60, 120, 240}[c.Intn("times", 3)]
	}
	if times <= 1 {
		return quick
	}
	p := slowly
	p.times = times
	return p
}

// slow says whether the world lives for hours.
func (p pace) slow() bool { return p.times > 1 }

// long chooses a duration that is many times longer in a slow world.
func (p pace) long(c Choices, what string, least, most time.Duration) time.Duration {
	return time.Duration(p.times) * within(c, what, least, most)
}
