package simulation

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// fault is a kind of fault. A seed has it or not; shrinking drops it.
type fault struct {
	name string
	// chance is in how many of a hundred seeds it is.
	chance int
	// start begins it. It ends with ctx, when healing begins.
	start func(ctx context.Context, w *World, d draws)
	// excuse is what its presence explains at the end.
	excuse excuse
}

// excuse is what the promises allow under a fault.
type excuse struct {
	// refused: messages may end as DEAD. misanswered: those of called producers may end as ABANDONED.
	refused, misanswered bool
	// outlasted: messages may end in both states, and leave their markers, because an outage uses up all questions.
	outlasted bool
	// web: the producer that is called by HTTP may keep its markers.
	web bool
	// markers: markers may stay. sqlMarkers: those in SQL may.
	markers, sqlMarkers bool
	// elsewhere: messages with markers in SQL may be ABANDONED, or wait for a database that is not there any more.
	elsewhere bool
	// forgets: Redis loses writes that it has confirmed, which coordinators notice by their pulses.
	forgets bool
}

func (e excuse) or(o excuse) excuse {
	return excuse{
		refused: e.refused || o.refused, misanswered: e.misanswered || o.misanswered, outlasted: e.outlasted || o.outlasted,
		markers: e.markers || o.markers, sqlMarkers: e.sqlMarkers || o.sqlMarkers,
		elsewhere: e.elsewhere || o.elsewhere, forgets: e.forgets || o.forgets, web: e.web || o.web,
	}
}

// parks says whether a message may end in the state for operators in which it stands. Databases are replaced only of
// those with markers in SQL.
func (e excuse) parks(s standing) bool {
	producer, _, _ := strings.Cut(s.key, "/")
	switch s.record.GetState() {
	case pb.State_STATE_DEAD:
		return e.refused || e.outlasted
	case pb.State_STATE_ABANDONED:
		return e.outlasted || e.misanswered || e.elsewhere && marksInSQL(producer)
	default:
		return false
	}
}

// stays says whether the markers of a producer may stay.
func (e excuse) stays(producer string) bool {
	return e.markers || e.outlasted || e.web && producer == webName ||
		e.sqlMarkers && slices.Contains(kinds, producer) && !inMemory(producer)
}

// marksInSQL says that a message, or a producer, is one with markers in SQL and no table of messages.
func marksInSQL(name string) bool { return strings.HasPrefix(name, markingPrefix) }

// draws are the choices of one fault.
type draws struct {
	choices Choices
	of      string
	all     *strikes
	pace    pace
}

func (d draws) intn(what string, n int) int { return d.choices.Intn(d.of+": "+what, n) }

func (d draws) within(what string, least, most time.Duration) time.Duration {
	return within(d.choices, d.of+": "+what, least, most)
}

// long chooses the length of a pause or an outage.
func (d draws) long(what string, least, most time.Duration) time.Duration {
	return d.pace.long(d.choices, d.of+": "+what, least, most)
}

// allFaults is the table of faults.
var allFaults = slices.Concat(
	networkFaults, nodeFaults, redisFaults, brokerFaults, queueFaults, answerFaults, httpFaults, databaseFaults,
	operatorFaults,
)

// faulty is what is broken in a world.
type faulty struct {
	end     context.CancelFunc
	drawn   []fault
	excuse  excuse
	strikes strikes
	// running holds the goroutines of faults.
	running sync.WaitGroup

	mu sync.Mutex
	// judges decide about publishings at the broker, answers about calls of producers, and pages about those by HTTP.
	judges  []amqpbroker.Judge
	answers []answerFault
	pages   []pageFault
	// forgotten are the times whose writes Redis has lost.
	forgotten [][2]time.Time
}

// answerFault changes the answer of a producer, or hands the call on to next.
type answerFault func(ctx context.Context, producer string, in any, next grpc.UnaryHandler) (any, error)

func (f *faulty) names() (names []string) {
	for _, one := range f.drawn {
		names = append(names, one.name)
	}
	return names
}

// hasFault says whether the seed has drawn a kind of fault.
func (w *World) hasFault(name string) bool { return slices.Contains(w.faulty.names(), name) }

// drawFaults draws the faults of the seed.
func (w *World) drawFaults() {
	for _, one := range allFaults {
		has := percent(w.Choices, "has "+one.name, w.pace.share(one.chance))
		if len(w.options.Only) > 0 {
			has = slices.Contains(w.options.Only, one.name)
		}
		if one.excuse.forgets && w.pace.slow() {
			continue // the pulse that notices a loss passes four times a second, and costs more than all else
		}
		if !has || slices.Contains(w.options.Without, one.name) {
			continue
		}
		w.faulty.drawn = append(w.faulty.drawn, one)
		w.faulty.excuse = w.faulty.excuse.or(one.excuse)
	}
	if w.pace.slow() { // an outage of hours uses up questions and publishings
		w.faulty.excuse = w.faulty.excuse.or(excuse{outlasted: true})
	}
}

// breakThings begins the faults.
func (w *World) breakThings() {
	var ctx context.Context
	ctx, w.faulty.end = context.WithCancel(w.life)
	for _, one := range w.faulty.drawn {
		one.start(ctx, w, draws{w.Choices, one.name, &w.faulty.strikes, w.pace})
	}
	w.note("faults: %v; settings: %v", w.faulty.names(), w.drawn.keys)
}

// goes runs a part of a fault.
func (w *World) goes(part func()) { w.faulty.running.Go(part) }

// repeat does something again and again, with pauses.
func (w *World) repeat(ctx context.Context, d draws, act func()) {
	w.goes(func() {
		for sleep(ctx, d.long("pause", time.Second, time.Minute)) == nil {
			if d.strikes("again") {
				act()
			}
		}
	})
}

// stopFaults ends all faults, and returns when all is repaired.
func (w *World) stopFaults() {
	w.faulty.end()
	w.faulty.running.Wait()
	w.Ledger.Fault("everything is repaired")
}

// judgePublished implements amqpbroker.Judge, and notes the order in which the broker acknowledges messages. An
// unroutable message counts as well: its successors must wait for another copy.
func (w *World) judgePublished(p amqpbroker.Published) amqpbroker.Verdict {
	w.faulty.mu.Lock()
	judges := w.faulty.judges
	w.faulty.mu.Unlock()
	v := amqpbroker.Ack
	for _, judge := range judges {
		if v = judge(p); v != amqpbroker.Ack {
			break
		}
	}
	key := p.AppID + "/" + p.MessageID
	if v == amqpbroker.Ack || v == amqpbroker.CloseConn || v == amqpbroker.Forget {
		w.losses.store(key, v == amqpbroker.Forget)
		w.Ledger.Reached(key)
	}
	return v
}

// answering lets a call of a coordinator be answered, or not.
func (f *faulty) answering(
	ctx context.Context, producer string, in any, next grpc.UnaryHandler,
) (any, error) {
	f.mu.Lock()
	answers := f.answers
	f.mu.Unlock()
	for _, fault := range answers {
		inner := next // the calls nest
		next = func(ctx context.Context, in any) (any, error) { return fault(ctx, producer, in, inner) }
	}
	return next(ctx, in)
}
