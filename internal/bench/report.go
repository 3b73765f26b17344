package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/bench/usage"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Report is what a run found.
type Report struct {
	Settings Settings `json:"settings"`
	// Messages is how many callers were done with within Seconds, and Rate how many a second that is: those that are
	// submitted when they are acknowledged, silent ones when they have committed, the others when they have rolled back.
	Messages int64   `json:"messages"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"messages_per_second"`
	// Failed is how many callers got no answer, or another one; of all, not only those within Seconds.
	Failed int64 `json:"failed"`
	// Unbegun is how many were due within Seconds and never begun, because as many were under way as may be.
	Unbegun int64 `json:"never_begun"`
	// HalfToAck is from when a half message was due until the broker's acknowledgement was stored, SubmitToAck from its
	// Submit, SubmitToDelivery from its Submit to the consumer. They are those of messages that were due within Seconds,
	// however long they took. Failed and Unbegun have no time: where there are any, the others' look too good.
	HalfToAck        *Latency `json:"half_to_ack,omitempty"`
	SubmitToAck      *Latency `json:"submit_to_ack,omitempty"`
	SubmitToDelivery *Latency `json:"submit_to_delivery,omitempty"`
	// CPU is microseconds of processor time for each message, by process; Memory and MostMemory are bytes.
	CPU        map[string]float64 `json:"cpu_us_per_message,omitempty"`
	Memory     map[string]uint64  `json:"memory_bytes,omitempty"`
	MostMemory map[string]uint64  `json:"most_memory_bytes,omitempty"`
	// RedisBytes is what one pending message takes in Redis.
	RedisBytes float64 `json:"redis_bytes_per_pending_message,omitempty"`
	Balance    Balance `json:"balance"`
	// Deliveries is what each queue has delivered, where there are several.
	Deliveries map[string]int64 `json:"deliveries_by_queue,omitempty"`
}

// Settings are what was measured.
type Settings struct {
	Name         string  `json:"name"`
	Mode         Mode    `json:"mode"`
	Coordinators int     `json:"coordinators"`
	Producers    int     `json:"producers"`
	Callers      int     `json:"callers,omitempty"`
	Rate         int     `json:"offered_per_second,omitempty"`
	Body         int     `json:"body_bytes"`
	Silent       float64 `json:"silent"`
	Rollback     float64 `json:"rollback"`
	Queue        string  `json:"queue"`
	Queues       int     `json:"queues"`
}

// window is the time in which is measured.
type window struct {
	// opens and closes say which messages are timed: those that are due in between. from and to are when was counted.
	opens, closes time.Time

	from, to     time.Time
	first, last  counts
	spent, spend map[string]usage.Spent
}

// covers says whether a message is timed that is due then.
func (w *window) covers(due time.Time) bool { return !due.Before(w.opens) && due.Before(w.closes) }

// missed is how many messages are timed of those that were due from then on until now.
func (w *window) missed(due time.Time, interval time.Duration) (n int64) {
	for now := time.Now(); !due.After(now); due = due.Add(interval) {
		if w.covers(due) {
			n++
		}
	}
	return n
}

func (w *window) begin(r *run) {
	w.from, w.first, w.spent = time.Now(), r.tally.counts(), r.config.Processes.Sample()
}

func (w *window) end(r *run) {
	w.to, w.last, w.spend = time.Now(), r.tally.counts(), r.config.Processes.Sample()
	if w.from.IsZero() { // it was over before it had begun
		w.from, w.first, w.spent = w.to, w.last, w.spend
	}
}

func (r *run) report() Report {
	w := &r.window
	report := Report{
		Settings: r.settings(), Messages: w.last.done - w.first.done, Seconds: w.to.Sub(w.from).Seconds(),
		Failed: r.tally.counts().failed, Unbegun: r.unbegun,
		CPU: map[string]float64{}, Memory: map[string]uint64{}, MostMemory: map[string]uint64{},
		Balance: r.tally.balance(),
	}
	r.latencies.into(&report)
	if len(r.queues.names) > 1 {
		report.Deliveries = r.queues.deliveries()
	}
	if report.Messages == 0 {
		return report
	}
	report.Rate = float64(report.Messages) / report.Seconds
	for name, end := range w.spend {
		if begin, known := w.spent[name]; known {
			report.CPU[name] = float64((end.CPU - begin.CPU).Microseconds()) / float64(report.Messages)
			report.Memory[name], report.MostMemory[name] = end.Memory, end.MostMemory
		}
	}
	return report
}

func (r *run) settings() Settings {
	c := r.config
	s := Settings{
		Name: r.name, Mode: c.Mode, Coordinators: len(c.Coordinators), Producers: c.Producers, Callers: c.Callers, Rate: c.Rate,
		Body: c.Body, Silent: c.Silent, Rollback: c.Rollback, Queue: "quorum", Queues: c.Queues,
	}
	if c.Rate > 0 {
		s.Callers = 0
	}
	if c.Classic {
		s.Queue = "classic"
	}
	return s
}

// unfinished are the states of messages that nobody will come back to once this run has ended.
var unfinished = []pb.State{pb.State_STATE_PENDING, pb.State_STATE_ABANDONED, pb.State_STATE_DEAD}

// discard takes away what a run that did not come out even has left with the coordinators.
func (r *run) discard() (err error) {
	if b := r.tally.balance(); b.Lost == 0 && r.tally.counts().failed == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range r.producers {
		admin := pb.NewAdminServiceClient(s.conns[0])
		for _, state := range unfinished {
			_, failed := admin.DiscardMessages(ctx, &pb.DiscardMessagesRequest{
				Producer: s.name, State: state, Limit: discardMost, Reason: "left over by msghandler-bench",
			})
			if failed != nil && status.Code(failed) != codes.NotFound {
				err = errors.Join(err, fmt.Errorf("what is %v of %s is still there: %w", state, s.name, failed))
			}
		}
	}
	return err
}

// discardMost is what one call discards at most.
const discardMost = 10_000
