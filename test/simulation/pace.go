package simulation

import (
	"time"
)

// pace is how much happens in a world, and how fast. In a slow world as much happens as in a quick one, within hours:
// pauses, outages and the time of the messages are many times longer, so that questions and publishings are used up,
// backoffs reach their last step, and receipts and the archive expire. The coordinators' schedules are slower too: an
// idle coordinator costs most of the time of a run. In a small world little happens, so that many of them can be run.
type pace struct {
	// times is how much longer everything is than in a quick world.
	times int
	// small says that there are few coordinators, producers, messages and faults.
	small bool
	// look is how often the world looks whether all is final, for healing at most.
	look, healing time.Duration
	// ttlStep is how often TTLs run down in Redis: miniredis does not do so by itself. A key may expire that much late.
	ttlStep time.Duration
}

// The paces. In a quick world a producer is asked 15 times by default, five minutes apart at the end, and a message of
// a stalled route waits for two minutes. In a slow one a seed may draw eight questions, hours apart.
var (
	quick  = pace{times: 1, ttlStep: 5 * time.Second, look: 10 * time.Second, healing: 90 * time.Minute}
	small  = pace{times: 1, small: true, ttlStep: 5 * time.Second, look: 10 * time.Second, healing: 90 * time.Minute}
	slowly = pace{ttlStep: time.Minute, look: 2 * time.Minute, healing: 48 * time.Hour}
)

// drawPace draws the pace of a world, unless the options decide.
func drawPace(c Choices, o Options) pace {
	times := o.Times
	switch {
	case o.Small:
		return small
	case times == 0 && c.Intn("slow", 4) > 0:
		times = []int{120, 240, 480}[c.Intn("times", 3)]
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

// share is how likely a part is that is in so many of a hundred quick worlds.
func (p pace) share(percent int) int {
	if p.small {
		return (percent + 2) / 3
	}
	return percent
}

// nodes, messages and span draw how many coordinators and messages there are, and within what time the messages are
// sent.
func (p pace) nodes(c Choices) int {
	if p.small {
		return 1 + c.Intn("coordinators", 2)
	}
	return 3
}

func (p pace) messages(c Choices) int {
	if p.small {
		return 2 + c.Intn("messages", 7)
	}
	return 10 + c.Intn("messages", 50)
}

func (p pace) span(c Choices) time.Duration {
	if p.small {
		return within(c, "span", time.Second, 20*time.Second)
	}
	return p.long(c, "span", 10*time.Second, 3*time.Minute)
}
