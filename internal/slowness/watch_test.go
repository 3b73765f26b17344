package slowness_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/peerstats"
	"github.com/msghandler/msghandler/internal/slowness"
)

// load is what happens at a coordinator within a second.
type load struct {
	// redis and broker are the latencies, and calls how many of each there are.
	redis, broker time.Duration
	calls         int
	// late is by how much the coordinator runs too late.
	late time.Duration
	// rate, asked, unknown and failed are numbers of the producer orders.
	rate, asked, unknown, failed float64
	circuits                     int
}

// ordinary is an ordinary hour.
var ordinary = load{
	redis: 2 * time.Millisecond, broker: 8 * time.Millisecond, calls: 20, late: 5 * time.Millisecond, rate: 20, asked: 20,
	unknown: .1, failed: .1,
}

// plant is a coordinator in fake time.
type plant struct {
	t             *testing.T
	watch         slowness.Watch
	late          time.Duration
	redis, broker peerstats.Latency
	// past has the loads of the seconds of the last half minute: the rates of producers are measured over it.
	past    []load
	limited bool
	began   time.Time
	// seen has what was slow since the last call of run, with when it was seen first.
	seen map[string]time.Duration
}

func inFakeTime(t *testing.T, test func(p *plant)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&plant{t: t, began: time.Now()}) })
}

// run lets a load last for a time.
func (p *plant) run(d time.Duration, second func(n int) load) {
	p.seen = map[string]time.Duration{}
	begun := time.Now()
	for n := range int(d / time.Second) {
		time.Sleep(time.Second)
		l := second(n)
		p.late += l.late
		for range l.calls {
			p.redis.Observe(l.redis)
			p.broker.Observe(l.broker)
		}
		p.past = append(p.past, l)
		p.past = p.past[max(0, len(p.past)-30):]
		if int(time.Since(p.began)/time.Second)%5 != 0 {
			continue
		}
		p.watch.Observe(p.measured(), time.Now())
		for _, name := range p.slow() {
			if _, known := p.seen[name]; !known {
				p.seen[name] = time.Since(begun)
			}
		}
	}
}

func (p *plant) measured() slowness.Measured {
	orders := peerstats.Producer{Name: "orders", Paused: p.past[len(p.past)-1].circuits}
	for _, l := range p.past {
		orders.Rates.In += l.rate / 30
		orders.Rates.Asked += l.asked / 30
		orders.Rates.Unknown += l.unknown / 30
		orders.Rates.Failed += l.failed / 30
	}
	return slowness.Measured{
		Late: p.late, Redis: p.redis.Counts(), Brokers: map[string]peerstats.Counted{"": p.broker.Counts()},
		Producers: []peerstats.Producer{orders}, Limited: func(string) bool { return p.limited },
	}
}

var kinds = []string{"starved", "redis", "broker", "unknown", "errors", "runaway"}

func (p *plant) slow() (names []string) {
	for _, s := range p.watch.All() {
		names = append(names, kinds[s.Kind])
	}
	return names
}

func (p *plant) quiet(when string) {
	p.t.Helper()
	if len(p.seen) > 0 {
		p.t.Errorf("%s: %v is found slow: %+v", when, p.seen, p.watch.All())
	}
}

// steady is a load that does not change.
func steady(l load) func(int) load { return func(int) load { return l } }

func with(change func(l *load)) load {
	l := ordinary
	change(&l)
	return l
}

func TestStartIsNotSlow(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(time.Minute, func(n int) load {
			l := load{redis: 90 * time.Millisecond, broker: 2 * time.Second, calls: 3, late: 150 * time.Millisecond}
			l.rate, l.asked, l.unknown, l.failed = 2000, 2000, 1900, 100 // a backlog of an outage
			return l
		})
		p.quiet("a start")
		p.run(time.Hour, steady(ordinary))
		p.quiet("the hour after a start")
	})
}

func TestFullLoadIsNotSlow(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(time.Hour, steady(ordinary))
		p.run(10*time.Minute, steady(load{
			redis: 90 * time.Millisecond, broker: 900 * time.Millisecond, calls: 200, late: 180 * time.Millisecond,
			rate: 190, asked: 190, unknown: 20, failed: 5,
		}))
		p.quiet("a burst at full load")
		p.run(time.Hour, steady(ordinary))
		p.quiet("the hour after a burst")
	})
}

func TestMorningAfterNightIsNotSlow(t *testing.T) {
	for _, night := range []load{{}, {redis: time.Millisecond, broker: time.Millisecond, calls: 1, rate: .1}} {
		inFakeTime(t, func(p *plant) {
			day := with(func(l *load) { l.rate, l.calls = 300, 50 })
			p.run(8*time.Hour, steady(day))
			p.run(14*time.Hour, steady(night))
			p.run(time.Hour, func(n int) load {
				l := day
				if n < 20 { // cold connections and caches
					l.redis, l.broker = 80*time.Millisecond, 800*time.Millisecond
				}
				l.rate = 600
				return l
			})
			p.quiet(fmt.Sprintf("the morning after a night with %v", night.rate))
		})
	}
}

// A coordinator that starts in the night knows no day. The load of the morning grows within minutes.
func TestFirstMorningIsNotRunaway(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(8*time.Hour, steady(load{rate: .5, calls: 1, redis: time.Millisecond, broker: time.Millisecond}))
		p.run(time.Hour, func(n int) load {
			return with(func(l *load) { l.rate = min(500, .5+float64(n)/4) })
		})
		p.quiet("the first morning")
	})
}

// A batch of each week is as usual as a morning.
func TestWeeklyBatchIsNotRunaway(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		batch := with(func(l *load) { l.rate = 500 })
		p.run(10*time.Minute, steady(batch))
		p.run(7*24*time.Hour, steady(with(func(l *load) { l.rate = 1 })))
		p.run(10*time.Minute, steady(batch))
		p.quiet("the second batch")
	})
}

// Names of producers come and go. A new producer is judged, however many there have been.
func TestIdleProducersMakeRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w slowness.Watch
		sends := func(producer string, rate float64) {
			w.Observe(slowness.Measured{
				Producers: []peerstats.Producer{{Name: producer, Rates: peerstats.Rates{In: rate}}},
				Limited:   func(string) bool { return false },
			}, time.Now())
			time.Sleep(slowness.Interval)
		}
		for n := range 2000 {
			sends(fmt.Sprint(n), 1)
		}
		for range 500 {
			sends("runs away", 1)
		}
		for range 20 {
			sends("runs away", 1000)
		}
		if all := w.All(); len(all) != 1 || all[0].Name != "runs away" {
			t.Errorf("found slow is %+v", all)
		}
	})
}

func TestNoisyMachineIsNotSlow(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		dice := rand.New(rand.NewPCG(1, 2))
		p.run(6*time.Hour, func(n int) load {
			l := ordinary
			l.late = time.Duration(dice.IntN(150)) * time.Millisecond
			l.redis = time.Duration(1+dice.IntN(60)) * time.Millisecond
			l.broker = time.Duration(5+dice.IntN(900)) * time.Millisecond
			l.rate, l.asked = float64(dice.IntN(60)), float64(dice.IntN(60))
			l.unknown, l.failed = l.asked*dice.Float64()/10, l.asked*dice.Float64()/10
			switch n % 600 {
			case 100, 101, 102, 103, 104: // a fork or a full disk holds Redis up
				l.redis, l.broker, l.calls = 4*time.Second, 5*time.Second, 1
			case 300, 301, 302: // the machine pauses
				l.late, l.calls = time.Second, 0
			}
			return l
		})
		p.quiet("a noisy machine")
	})
}

// incidents are loads from one second to the next, each with what it is to be found as.
var incidents = []struct {
	found string
	load  load
}{
	{"redis", with(func(l *load) { l.redis, l.calls = 200*time.Millisecond, 4 })},
	{"redis", with(func(l *load) { l.redis, l.calls = 2*time.Second, 1 })},
	{"broker", with(func(l *load) { l.broker, l.calls = 6*time.Second, 1 })},
	{"broker", with(func(l *load) { l.broker = 1500 * time.Millisecond })},
	{"starved", with(func(l *load) {
		l.late, l.redis, l.broker, l.calls = 800*time.Millisecond, 900*time.Millisecond, 4*time.Second, 2
	})},
	{"starved", with(func(l *load) { l.late, l.redis = 300*time.Millisecond, 150*time.Millisecond })},
	{"unknown", with(func(l *load) { l.unknown = l.asked / 3 })},
	{"errors", with(func(l *load) { l.failed = l.asked / 2 })},
	{"runaway", with(func(l *load) { l.rate, l.asked = 1000, 1000 })},
}

func TestIncidentsAreFoundWithinHalfMinute(t *testing.T) {
	for _, i := range incidents {
		inFakeTime(t, func(p *plant) {
			p.run(time.Hour, steady(ordinary))
			p.quiet("before")
			p.run(2*time.Hour, steady(i.load))
			if at, found := p.seen[i.found]; !found || at > 30*time.Second || len(p.seen) > 1 {
				t.Errorf("%+v is found as %v, want %s", i.load, p.seen, i.found)
			}
			if names := strings.Join(p.slow(), " "); names != i.found {
				t.Errorf("after two hours %q is slow, want %s", names, i.found)
			}
			p.run(100*time.Second, steady(ordinary))
			if still := p.slow(); len(still) > 0 {
				t.Errorf("100 s after the end of %s, %v is slow", i.found, still)
			}
			p.run(10*time.Minute, steady(ordinary))
			p.quiet("after " + i.found)
			p.run(time.Minute, steady(i.load))
			if at, found := p.seen[i.found]; !found || at > 30*time.Second {
				t.Errorf("the second time %s is found: %t, after %v", i.found, found, at)
			}
		})
	}
}

// A restart is the first that people try: what is slow without any doubt is found without a past.
func TestRestartDoesNotHideSlowness(t *testing.T) {
	for _, i := range incidents[:3] {
		inFakeTime(t, func(p *plant) {
			p.run(45*time.Second, steady(i.load))
			if _, found := p.seen[i.found]; !found {
				t.Errorf("%s is not found after a start", i.found)
			}
		})
	}
}

// silence is a time in which nothing comes, such as an outage of Redis.
var silence = load{}

// Outboxes send at once what an outage has held up.
func TestCatchingUpIsNoRunaway(t *testing.T) {
	for _, outage := range []time.Duration{5 * time.Minute, 10 * time.Minute, 25 * time.Minute} {
		inFakeTime(t, func(p *plant) {
			p.run(time.Hour, steady(ordinary))
			p.run(outage, steady(silence))
			heldUp := ordinary.rate * outage.Seconds()
			p.run(time.Hour, func(int) load {
				sent := min(heldUp, 2000)
				heldUp -= sent
				return with(func(l *load) { l.rate += sent })
			})
			p.quiet(fmt.Sprintf("the hour after an outage of %v", outage))
			p.run(time.Minute, steady(incidents[len(incidents)-1].load))
			if at, found := p.seen["runaway"]; !found || at > 30*time.Second {
				t.Errorf("later a runaway is found: %t, after %v", found, at)
			}
		})
	}
}

func TestRunawayAfterSilenceIsFound(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(time.Hour, steady(ordinary))
		p.run(10*time.Hour, steady(silence))
		p.run(5*time.Minute, steady(incidents[len(incidents)-1].load))
		if at, found := p.seen["runaway"]; !found || at > 2*time.Minute {
			t.Errorf("a runaway is found: %t, after %v", found, at)
		}
	})
}

func TestLimitedProducerIsNoRunaway(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.limited = true
		p.run(time.Hour, steady(ordinary))
		p.run(time.Hour, steady(with(func(l *load) { l.rate = 1000 })))
		p.quiet("within calls_per_second")
	})
}

// The console tells of an open circuit already, and for a while its answers are few.
func TestRestartOfProducerIsNoError(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(time.Hour, steady(ordinary))
		p.run(20*time.Second, steady(with(func(l *load) { l.failed, l.circuits = l.asked, 1 })))
		p.run(10*time.Minute, steady(ordinary))
		p.quiet("after the restart of a producer")
	})
}

func TestUsualValueIsTold(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(time.Hour, steady(ordinary))
		p.run(time.Minute, steady(incidents[0].load))
		all := p.watch.All()
		if len(all) != 1 || all[0].Usual < .001 || all[0].Usual > .003 || all[0].Value < .17 || all[0].Value > .23 ||
			time.Since(all[0].Since) < 30*time.Second {
			t.Errorf("got %+v", all)
		}
	})
}

// Of producers that no coordinator tells of any more, nothing is told either.
func TestForgottenProducerIsNotSlow(t *testing.T) {
	inFakeTime(t, func(p *plant) {
		p.run(time.Hour, steady(ordinary))
		p.run(time.Minute, steady(incidents[len(incidents)-1].load))
		m := p.measured()
		m.Producers = nil
		for range 8 {
			time.Sleep(slowness.Interval)
			p.watch.Observe(m, time.Now())
		}
		if still := p.slow(); len(still) > 0 {
			t.Errorf("%v is slow", still)
		}
	})
}
