package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/dev/bench/usage"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The groups of processes whose costs are reported.
const (
	Coordinator = "coordinator"
	Redis       = "Redis"
	RabbitMQ    = "RabbitMQ"
	Producer    = "producer"
)

// Processes are the groups in the order of a table.
var Processes = []string{Coordinator, Redis, RabbitMQ, Producer}

// Report holds the results of a run.
type Report struct {
	Settings Settings `json:"settings"`
	// Messages is the number of messages that ended within Seconds, Rate the number per second. Submitted messages end
	// with their acknowledgement, silent messages with their commit, the others with their rollback.
	Messages int64   `json:"messages"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"messages_per_second"`
	// Failed is the number of messages whose caller got an error or no answer, in the whole run and not only within
	// Seconds.
	Failed int64 `json:"failed"`
	// Unbegun is the number of messages that were due within Seconds and never began, because maxOpen were in flight.
	Unbegun int64 `json:"never_begun"`
	// HalfToAck is the time from when a half message was due until the broker's acknowledgement was stored, SubmitToAck
	// the time from Submit until then, SubmitToDelivery from Submit to the consumer. The times cover messages that were
	// due within Seconds, however long they took. Failed and Unbegun messages have no time: where there are any, the times
	// look too good.
	HalfToAck        *Latency `json:"half_to_ack,omitempty"`
	SubmitToAck      *Latency `json:"submit_to_ack,omitempty"`
	SubmitToDelivery *Latency `json:"submit_to_delivery,omitempty"`
	// CPU is microseconds of processor time for each message, by process; Memory and MostMemory are bytes.
	CPU        map[string]float64 `json:"cpu_us_per_message,omitempty"`
	Memory     map[string]uint64  `json:"memory_bytes,omitempty"`
	MostMemory map[string]uint64  `json:"most_memory_bytes,omitempty"`
	Balance    Balance            `json:"balance"`
	// Deliveries is the number of deliveries of each queue, where there are several.
	Deliveries map[string]int64 `json:"deliveries_by_queue,omitempty"`
}

// Settings describe the load.
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

// window is the time of the measurement.
type window struct {
	// Messages that are due between opens and closes are timed. from and to are the times of the two samples.
	opens, closes time.Time

	from, to     time.Time
	first, last  counts
	spent, spend map[string]usage.Spent
}

// covers says whether a message with this due time is timed.
func (w *window) covers(due time.Time) bool { return !due.Before(w.opens) && due.Before(w.closes) }

// missed is the number of timed messages that were due from this time until now.
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
	if w.from.IsZero() { // the load ended during its warm-up
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
		Name: r.name, Mode: c.Mode, Coordinators: len(c.Coordinators), Producers: c.Producers, Callers: c.Callers,
		Rate: c.Rate, Body: c.Body, Silent: c.Silent, Rollback: c.Rollback, Queue: "quorum", Queues: c.Queues,
	}
	if c.Rate > 0 {
		s.Callers = 0
	}
	if c.Classic {
		s.Queue = "classic"
	}
	return s
}

// unfinished are the states in which messages of an ended run would stay for good.
var unfinished = []pb.State{pb.State_STATE_PENDING, pb.State_STATE_ABANDONED, pb.State_STATE_DEAD}

// discard removes the messages that an uneven run has left with the coordinators.
func (r *run) discard() (err error) {
	if b := r.tally.balance(); b.Lost == 0 && r.tally.counts().failed == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range r.producers {
		admin := adminv1.NewAdminServiceClient(s.conns[0])
		for _, state := range unfinished {
			_, failed := admin.DiscardMessages(ctx, &adminv1.DiscardMessagesRequest{
				Selection: &adminv1.MessageSelection{Filter: &adminv1.MessageFilter{Producer: s.name, State: state}},
				Limit:     discardMost,
				Reason:    "left over by msghandler-bench",
			})
			if failed != nil && status.Code(failed) != codes.NotFound {
				err = errors.Join(err, fmt.Errorf("the %v messages of %s are not discarded: %w", state, s.name, failed))
			}
		}
	}
	return err
}

// discardMost is the limit of one call.
const discardMost = 10_000
