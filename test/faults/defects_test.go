package faults

import (
	"cmp"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/defects"
)

// A coordinator with a defect may never drain. The drain gets well more time than the row takes with the right
// coordinator: slow is for rows where leases must end first.
const (
	drainOfDefects = 5 * time.Second
	slowDrain      = 15 * time.Second
)

// defect is one of package defects, and a row that must notice it.
type defect struct {
	name string
	// short defects are tried in the ordinary tests.
	short bool
	// consumes says that the defect is one of the consumers, which are processes in that row.
	consumes bool
	row      string
	// faulty is the row with the defect, where it is one of the producer, and no program has it.
	faulty func(r row) row
	// want is a verdict that must be among the findings; also is another expected verdict, if there is a second.
	want, also Verdict
	// drain is the time for draining, if not drainOfDefects.
	drain time.Duration
}

var knownDefects = append([]defect{
	{name: "returns_ignored", short: true, row: "F22_returned", want: Lost},
	{name: "return_logged_and_done", row: "F22_returned", want: Lost},
	{name: "nats_silence_is_done", row: "F21_nats_kill", want: Lost, drain: slowDrain},
	{name: "kafka_silence_is_done", row: "F21_kafka_kill", want: Lost, drain: slowDrain},
	{name: "done_without_ack", row: "F22_returned", want: Lost},
	{name: "no_attempt_header", short: true, row: "F29_full", want: Dup},
	{name: "headers_lost", row: "F00", want: Corrupted, drain: patience},
	{name: "send_overwrites", short: true, row: "F20_other", want: Corrupted},
	{name: "unknown_at_limit_is_rollback", row: "F09_late", want: Lost},
	{name: "dropped_at_limit", row: "F09_late", want: Lost},
	{name: "pending_expires", row: "F09_late", want: Lost},
	{name: "unavailable_is_unknown", row: "F06_unanswered", want: Parked},
	{name: "unknown_is_rollback", row: "F09_late", want: Lost},
	{name: "no_answer_is_rollback", row: "F09_late", want: Lost},
	{name: "last_of_two_verdicts_wins", row: "F10_both", want: Phantom},
	{name: "later_rollback_wins", row: "F08_late", want: Lost},
	{name: "submit_believed", row: "F08_early", want: Phantom},
	{name: "trust_remembered", row: "F08_trusted", want: Parked},
	{name: "no_token_on_writes", row: "F16_write", want: Dup},
	{name: "marker_deleted_before_the_verdict", row: "F03_deleting", want: Lost, also: Contradiction, drain: slowDrain},
	{name: "lease_never_ends", row: "F03_deleting", want: Stuck, drain: slowDrain},
	{name: "copy_of_a_dead_owner_forgotten", row: "F03_unheard", want: Dup, drain: slowDrain},
	{name: "marker_taken_as_deleted", row: "F00", want: Leftover, drain: patience},
	{name: "time_of_the_verdict_stays", row: "F20_other", want: Leftover},
	{name: "counted_twice", row: "F00", want: Account, drain: patience},
	{name: "duplicates_not_dropped", row: "F30_sql", want: Effect, consumes: true, drain: patience},
	{name: "inbox_before_the_effect", row: "F30_sql", want: Effect, consumes: true, drain: patience},
	{name: "counted_never", row: "F20_other", want: Account},
	{name: "failed_http_call_is_rollback", row: "F01_http", want: Lost, drain: slowDrain},
	{
		name: "markers_in_memory_only", row: "F01_memory", want: Parked,
		faulty: func(r row) row { r.fault = forgetfulProducer(false); return r },
	},
}, streamDefects...)

// Each row of single messages is clean with the right coordinator (TestRows), and finds the mistake of a wrong
// coordinator.
func TestDefects(t *testing.T) {
	for _, d := range knownDefects {
		if d.short || *every {
			t.Run(d.name, d.run)
		}
	}
}

// The rows may be blind to a verdict that no defect brings about.
func TestEveryVerdictHasItsDefect(t *testing.T) {
	t.Parallel()
	for _, v := range verdicts {
		if v == OutOfOrder {
			continue // no message of the rows has an ordering key: the simulation judges the order
		}
		if !slices.ContainsFunc(knownDefects, func(d defect) bool { return d.want == v || d.also == v }) {
			t.Errorf("no defect is there to be found as %s", v)
		}
	}
}

// Without a defect of its own a row proves nothing.
func TestEverySmallRowHasItsDefect(t *testing.T) {
	t.Parallel()
	for _, r := range smallRows {
		if !slices.ContainsFunc(knownDefects, func(d defect) bool { return d.row == r.name }) {
			t.Errorf("no defect is there for %s to find", r.name)
		}
	}
}

func (d defect) run(t *testing.T) {
	at := slices.IndexFunc(rows, func(r row) bool { return r.name == d.row })
	if at < 0 {
		t.Fatalf("there is no row %s", d.row)
	}
	r := rows[at]
	if d.faulty != nil {
		r = d.faulty(r)
	}
	if d.consumes {
		r.world.consumers = d.build(t, ".", "test", "-c")
	} else {
		r.world.binary = d.build(t, "../../cmd/msghandler", "build")
	}
	w, _, end := r.play(t, cmp.Or(d.drain, drainOfDefects))
	found := Check(w.ledger, end)
	const some = 10
	for _, f := range found[:min(some, len(found))] {
		t.Logf("%s finds %s %s: %s", d.row, f.Verdict, f.Key, f.Words)
	}
	t.Log(summary(found, w.ledger))
	for _, want := range []Verdict{d.want, cmp.Or(d.also, d.want)} {
		if !slices.ContainsFunc(found, func(f Finding) bool { return f.Verdict == want }) {
			t.Errorf("%s has not found %s\n%s\n%s", d.row, want, w.ledger.History(key("1")), w.tails())
		}
	}
}

// build builds a package's program with the defect; the sources stay as they are.
func (d defect) build(t *testing.T, of string, how ...string) string {
	t.Helper()
	if d.faulty != nil {
		return ""
	}
	dir := t.TempDir()
	planted, err := defects.Named(d.name)
	if err != nil {
		t.Fatal(err)
	}
	list, err := planted.Overlay("../..", dir)
	if err != nil {
		t.Fatal(err)
	}
	// Without the tables for debuggers, linking takes half the time.
	built := filepath.Join(dir, "built")
	args := slices.Concat(how, []string{"-ldflags", "-s -w", "-overlay", list, "-o", built, of})
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build %s with the defect: %v\n%s", of, err, out)
	}
	return built
}
