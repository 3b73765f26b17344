package faults

import (
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// A coordinator with a defect may never drain. The drain gets well more time than the row takes with the right
// coordinator: slow is for rows where leases must end first.
const (
	drainOfDefects = 5 * time.Second
	slowDrain      = 15 * time.Second
)

// defect is a known mistake of earlier systems of this kind, and a row that must notice the mistake.
type defect struct {
	name string
	// short defects are tried in the ordinary tests.
	short bool
	// edits put the defect into the coordinator. Without edits the row itself has the defect, in its producer.
	edits []edit
	// consumes says that the edits put the defect into the consumers, which are processes in that row.
	consumes bool
	row      string
	// faulty is the row with the defect, where the coordinator has none.
	faulty func(r row) row
	// want is a verdict that must be among the findings; also is another expected verdict, if there is a second.
	want, also Verdict
	// drain is the time for draining, if not drainOfDefects.
	drain time.Duration
}

var (
	writtenDefect = flag.String("defect", "", "the defect that TestWriteDefect writes")
	writtenTo     = flag.String("to", "", "the directory that TestWriteDefect writes to")
)

// edit is one change of a source file, named from the top of the repository. The old text is there exactly once.
type edit struct{ file, old, new string }

const (
	lua         = "internal/store/redis/lua/"
	submits     = "internal/server/submit/"
	confirmloop = "internal/confirmloop/"
	publisher   = "broker/rabbitmq/"
	inboxes     = "consumer/inbox/sql/"
)

var defects = append([]defect{
	{
		name: "returns_ignored", short: true, row: "F22_returned", want: Lost,
		edits: []edit{{publisher + "confirmchannel.go", "case u.returned != nil:", "case false:"}},
	},
	{
		name: "return_logged_and_done", row: "F22_returned", want: Lost,
		edits: []edit{{
			publisher + "confirmchannel.go", "return publish.Refused.Because(u.returned)",
			"println(u.returned.Error())\n\t\treturn publish.Result{Outcome: publish.Acked}",
		}},
	},
	{
		name: "nats_silence_is_done", row: "F21_nats_kill", want: Lost, drain: slowDrain,
		edits: []edit{{
			"broker/nats/natsconn/answers.go", `return Unknown, fmt.Errorf("no answer of the stream: %w", err)`,
			"println(fmt.Sprint(err))\n\t\treturn Stored, nil",
		}},
	},
	{
		name: "kafka_silence_is_done", row: "F21_kafka_kill", want: Lost, drain: slowDrain,
		edits: []edit{{
			"broker/kafka/kafkaconn/answer.go", "now.doubtful != before.doubtful:\n\t\tfate = Unknown",
			"now.doubtful != before.doubtful:\n\t\tfate = Stored",
		}},
	},
	{
		name: "done_without_ack", row: "F22_returned", want: Lost,
		edits: []edit{{
			publisher + "publishcall.go", "u *unconfirmed, isolated bool) publish.Result {\n",
			"u *unconfirmed, isolated bool) publish.Result {\n\treturn publish.Result{Outcome: publish.Acked}\n",
		}},
	},
	{
		name: "no_attempt_header", short: true, row: "F29_full", want: Dup,
		edits: []edit{{publisher + "message.go", "headers[publish.HeaderAttempt] = int64(m.Attempt)\n", ""}},
	},
	{
		name: "headers_lost", row: "F00", want: Corrupted, drain: patience,
		edits: []edit{{
			publisher + "message.go", "\tfor key, value := range m.Headers {\n\t\theaders[key] = value\n\t}\n",
			"",
		}},
	},
	{
		name: "send_overwrites", short: true, row: "F20_other", want: Corrupted,
		edits: []edit{{lua + "create.lua", "if call('EXISTS', g.record .. id) == 1 then", "if false then"}},
	},
	{
		name: "unknown_at_limit_is_rollback", row: "F09_late", want: Lost,
		edits: []edit{{
			confirmloop + "confirm.go",
			`o.Event, o.Cause = halfmsg.EventGivenUp, "the producer answered UNKNOWN to the final question"`,
			"o.Event = halfmsg.EventRolledBack",
		}},
	},
	{
		name: "dropped_at_limit", row: "F09_late", want: Lost,
		edits: []edit{{
			"internal/halfmsg/state.go", "{Pending, EventGivenUp, Abandoned}", "{Pending, EventGivenUp, None}",
		}},
	},
	{
		// The sixty seconds of such a system, in the measure of the rows. The sweeper takes an expiry off again, so that
		// system had no sweeper.
		name: "pending_expires", row: "F09_late", want: Lost,
		edits: []edit{
			{
				lua + "create_paged.lua", "call('HSET', g.cells[FIRST], unpack(cells))\n",
				"call('HSET', g.cells[FIRST], unpack(cells))\n" +
					"for _, id in ipairs(g.ids) do call('PEXPIRE', g.base .. RECORD .. id, 1500) end\n",
			},
			{lua + "repair.lua", "if call('PERSIST', g.record .. id) == 1 then", "if false then"},
		},
	},
	{
		name: "unavailable_is_unknown", row: "F06_unanswered", want: Parked,
		edits: []edit{{confirmloop + "confirm.go", "case verdict == halfmsg.VerdictUnavailable:", "case false:"}},
	},
	{
		name: "unknown_is_rollback", row: "F09_late", want: Lost,
		edits: []edit{{
			"internal/callback/calls.go",
			"case msghandlerv1.Verdict_VERDICT_UNKNOWN:\n\t\treturn halfmsg.VerdictUnknown, true",
			"case msghandlerv1.Verdict_VERDICT_UNKNOWN:\n\t\treturn halfmsg.VerdictRolledBack, true",
		}},
	},
	{
		name: "no_answer_is_rollback", row: "F09_late", want: Lost,
		edits: []edit{{
			"internal/callback/calls.go", "if !ok {\n\t\t\tverdict = halfmsg.VerdictUnknown",
			"if !ok {\n\t\t\tverdict = halfmsg.VerdictRolledBack",
		}},
	},
	{
		name: "last_of_two_verdicts_wins", row: "F10_both", want: Phantom,
		edits: []edit{{
			"internal/callback/calls.go", "odd.contradictory++\n\t\t\tverdict = halfmsg.VerdictUnknown\n",
			"odd.contradictory++\n",
		}},
	},
	{
		name: "later_rollback_wins", row: "F08_late", want: Lost,
		edits: []edit{{
			"internal/halfmsg/state.go", "\t{Sendable, EventAcked, Done},\n",
			"\t{Sendable, EventRollback, RolledBack},\n\t{Sendable, EventAcked, Done},\n",
		}},
	},
	{
		name: "submit_believed", row: "F08_early", want: Phantom,
		edits: []edit{{submits + "submit.go", "if b.config.Trusted(name.Producer) {", "if true {"}},
	},
	{
		name: "trust_remembered", row: "F08_trusted", want: Parked,
		edits: []edit{{
			submits + "submit.go", "b.config.Intake.SubmitTrusted, b.config.SendLease",
			"b.config.Intake.Submit, b.config.ConfirmLease",
		}},
	},
	{
		name: "no_token_on_writes", row: "F16_write", want: Dup,
		edits: []edit{{
			lua + "move.lua", "if rule.needs_lease and (owned(g, id) ~= token or not live(due)) then", "if false then",
		}},
	},
	{
		name: "marker_deleted_before_the_verdict", row: "F03_deleting", want: Lost, also: Contradiction, drain: slowDrain,
		edits: []edit{{
			confirmloop + "confirm.go", "outcomes, err := q.outcomes(held)\n",
			"outcomes, err := q.outcomes(held)\n" +
				"\tfor i := range outcomes {\n" +
				"\t\tif outcomes[i].Event == halfmsg.EventCommitted {\n" +
				"\t\t\tq.confirmer.deleteMarkers(q.lane, []string{outcomes[i].ID})\n" +
				"\t\t}\n" +
				"\t}\n",
		}},
	},
	{
		name: "lease_never_ends", row: "F03_deleting", want: Stuck, drain: slowDrain,
		edits: []edit{{lua + "move.lua", "shift(g, s, to, id, now + hold)", "shift(g, s, to, id, now + hold + 600000)"}},
	},
	{
		name: "copy_of_a_dead_owner_forgotten", row: "F03_unheard", want: Dup, drain: slowDrain,
		edits: []edit{{
			lua + "claims.lua", "if s == COMMITTED then\n    call('HINCRBY', g.notes .. id, 'copies', 1)",
			"if false then\n    call('HINCRBY', g.notes .. id, 'copies', 1)",
		}},
	},
	{
		name: "marker_taken_as_deleted", row: "F00", want: Leftover, drain: patience,
		edits: []edit{{
			confirmloop + "markers.go", "err = d.config.Callbacks.DeleteBusiness(ctx, target, ids)", "err = ctx.Err()",
		}},
	},
	{
		// The sweeper removes the records that it finds, so the sweeper must not look for these records either.
		name: "time_of_the_verdict_stays", row: "F20_other", want: Leftover,
		edits: []edit{
			{lua + "writes.lua", "how('HDEL', g.verdicts, unpack(ids))\n", ""},
			{lua + "repair.lua", "if call('HDEL', g.verdicts, id) == 1 then", "if false then"},
		},
	},
	{
		name: "counted_twice", row: "F00", want: Account, drain: patience,
		edits: []edit{{
			"internal/sendloop/publish.go", "p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, n)",
			"p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, 2*n)",
		}},
	},
	{
		name: "duplicates_not_dropped", row: "F30_sql", want: Effect, consumes: true, drain: patience,
		edits: []edit{{inboxes + "inbox.go", "case !taken:", "case !taken && key != m.Key():"}},
	},
	{
		// A consumer that dies in between has the message dropped as a duplicate on redelivery.
		name: "inbox_before_the_effect", row: "F30_sql", want: Effect, consumes: true, drain: patience,
		edits: []edit{{
			inboxes + "inbox.go", "if err := effect(ctx, tx.Tx, m); err != nil {",
			"if err := tx.Commit(); err != nil {\n\t\t\treturn err\n\t\t}\n" +
				"\t\tif tx, err = i.table.Begin(ctx, i.config.TxOptions); err != nil {\n\t\t\treturn err\n\t\t}\n" +
				"\t\tif err := effect(ctx, tx.Tx, m); err != nil {",
		}},
	},
	{
		name: "counted_never", row: "F20_other", want: Account,
		edits: []edit{{
			"internal/sendloop/publish.go", "p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, n)",
			"p.sender.config.Metrics.Published(p.stage.name, key.exchange, key.outcome, 0*n)",
		}},
	},
	{
		name: "failed_http_call_is_rollback", row: "F01_http", want: Lost, drain: slowDrain,
		edits: []edit{{
			"internal/callback/http.go", "return nil, err\n\t}\n\treturn readConfirmations(body)",
			"println(err.Error())\n\t\tanswer := &msghandlerv1.ConfirmResponse{MarkerStore: r.GetMarkerStore()}\n" +
				"\t\tfor _, id := range r.GetIds() {\n" +
				"\t\t\tanswer.Confirmations = append(answer.Confirmations, &msghandlerv1.Confirmation{\n" +
				"\t\t\t\tId: id, Verdict: msghandlerv1.Verdict_VERDICT_ROLLED_BACK,\n\t\t\t})\n\t\t}\n" +
				"\t\treturn answer, nil\n\t}\n\treturn readConfirmations(body)",
		}},
	},
	{
		name: "markers_in_memory_only", row: "F01_memory", want: Parked,
		faulty: func(r row) row { r.fault = forgetfulProducer(false); return r },
	},
}, streamDefects...)

// Each row of single messages is clean with the right coordinator (TestRows), and finds the mistake of a wrong
// coordinator.
func TestDefects(t *testing.T) {
	for _, d := range defects {
		if d.short || *every {
			t.Run(d.name, d.run)
		}
	}
}

// The rows may be blind to a verdict that no defect brings about.
func TestEveryVerdictHasItsDefect(t *testing.T) {
	t.Parallel()
	for _, v := range verdicts {
		if !slices.ContainsFunc(defects, func(d defect) bool { return d.want == v || d.also == v }) {
			t.Errorf("no defect is there to be found as %s", v)
		}
	}
}

// Without a defect of its own a row proves nothing.
func TestEverySmallRowHasItsDefect(t *testing.T) {
	t.Parallel()
	for _, r := range smallRows {
		if !slices.ContainsFunc(defects, func(d defect) bool { return d.row == r.name }) {
			t.Errorf("no defect is there for %s to find", r.name)
		}
	}
}

// TestWriteDefect writes a defect for make simulate, which must find the defect too.
func TestWriteDefect(t *testing.T) {
	t.Parallel()
	if *writtenDefect == "" {
		return
	}
	at := slices.IndexFunc(defects, func(d defect) bool { return d.name == *writtenDefect })
	if at < 0 || len(defects[at].edits) == 0 {
		t.Fatalf("no defect %q changes the coordinator", *writtenDefect)
	}
	if err := os.MkdirAll(*writtenTo, 0o750); err != nil {
		t.Fatal(err)
	}
	defects[at].overlay(t, *writtenTo)
}

// Changed code must not leave a defect without its place.
func TestEveryDefectHasItsPlace(t *testing.T) {
	t.Parallel()
	for _, d := range defects {
		for _, e := range d.edits {
			e.apply(t)
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
	if len(d.edits) == 0 {
		return ""
	}
	dir := t.TempDir()
	list, built := d.overlay(t, dir), filepath.Join(dir, "built")
	// Without the tables for debuggers, linking takes half the time.
	args := slices.Concat(how, []string{"-ldflags", "-s -w", "-overlay", list, "-o", built, of})
	if out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build %s with the defect: %v\n%s", of, err, out)
	}
	return built
}

// overlay writes the changed files into a directory, and returns the file for go build -overlay.
func (d defect) overlay(t *testing.T, dir string) string {
	t.Helper()
	replaced := map[string]string{}
	for i, e := range d.edits {
		path := filepath.Join(dir, strings.ReplaceAll(e.file, "/", "_"))
		if err := os.WriteFile(path, []byte(e.apply(t)), 0o600); err != nil {
			t.Fatal(err)
		}
		if replaced[e.at(t)] != "" {
			t.Fatalf("edit %d changes %s a second time", i, e.file)
		}
		replaced[e.at(t)] = path
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	return list
}

// at is where the file is.
func (e edit) at(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", e.file))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// apply gives the file's text with the change made.
func (e edit) apply(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(e.at(t))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), e.old); n != 1 {
		t.Fatalf("%s holds the text %q %d times, not once: fit the defect to the present code", e.file, e.old, n)
	}
	return strings.Replace(string(text), e.old, e.new, 1)
}
