package languages

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/internal/cli"
	"github.com/msghandler/msghandler/internal/cli/commandline"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/test/wire"
)

// The checks of a language share one process, in this order: a JVM starts slowly.
var checks = []struct {
	name string
	run  func(s *shop)
}{
	{"a committed order is delivered once", (*shop).delivers},
	{"a failed order is rolled back", (*shop).rollsBack},
	{"no row is no verdict until the last question", (*shop).decides},
	{"the barrier holds against open transactions", (*shop).waitsForTransactions},
	{"an order that is being stored is not given up", (*shop).keepsStoring},
	{"a business that has not begun keeps its id", (*shop).keepsUnbegun},
	{"a late transaction fails at the tombstone", (*shop).failsLate},
	{"markers outlive their deletion for a week", (*shop).deletesTwice},
	{"a malformed request is refused", (*shop).refusesMalformed},
	{"a stranger is refused", (*shop).refusesStrangers},
	{"a database that is away costs nothing", (*shop).livesWithoutDatabase},
	{"a lost commit is found at the database", (*shop).findsCommits},
	{"a commit in doubt is left to the coordinator", (*shop).leavesDoubts},
	{"a commit that nobody can decide yet is left too", (*shop).leavesHeldIDs},
	{"Submit and Rollback come behind the row", (*shop).callsBehindTheRow},
	{"the rows of other producers are not its own", (*shop).keepsApart},
	{"a lost Submit loses nothing", (*shop).losesSubmit},
	{"many orders at once are taken", (*shop).takesMany},
	{"a full batch is answered", (*shop).answersBatches},
	{"verify-producer finds nothing", (*shop).passesVerification},
	{"the books balance", (*shop).balanced},
	{"killed at each step, the books balance", (*shop).diesAnywhere},
}

func TestLanguagesKeepTheContract(t *testing.T) {
	t.Parallel()
	c := startCoordinator(t)
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			s := openShop(t, c, l)
			for _, check := range checks {
				t.Run(check.name, func(t *testing.T) {
					within := s.T
					s.T = t
					defer func() { s.T = within }()
					check.run(s)
				})
			}
		})
	}
}

func (s *shop) delivers() {
	s.ordered("paid", 12, http.StatusOK, "VERDICT_COMMITTED")
	s.ordered("paid", 12, http.StatusOK, "VERDICT_COMMITTED") // by a client that has not seen the answer
	s.stands("paid", "COMMITTED")
	s.asked(false, "paid", "COMMITTED")
	s.asked(true, "paid", "COMMITTED")
}

func (s *shop) rollsBack() {
	s.ordered("declined", -1, http.StatusUnprocessableEntity, "VERDICT_ROLLED_BACK")
	s.stands("declined", "ROLLED_BACK")
	s.asked(false, "declined", "ROLLED_BACK")
	s.ordered("declined", 5, http.StatusConflict, "VERDICT_ROLLED_BACK")
}

func (s *shop) decides() {
	s.asked(false, "nobody", "UNKNOWN")
	s.stands("nobody", "UNKNOWN")
	s.asked(true, "nobody", "ROLLED_BACK")
	s.asked(false, "nobody", "ROLLED_BACK")
	s.stands("nobody", "ROLLED_BACK")
	// The columns are binary: ids that differ in case are two ids, and an id may have any characters.
	s.asked(true, "Nobody", "ROLLED_BACK")
	s.asked(false, "nobodY", "UNKNOWN")
	s.asked(true, "Ünï'\\\"%?:$1 x", "ROLLED_BACK")
}

// waitsForTransactions asks about a transaction of another replica, and about one of the program.
func (s *shop) waitsForTransactions() {
	for _, outcome := range []string{"COMMITTED", "ROLLED_BACK"} {
		id := "open-" + outcome
		tx, err := s.db.BeginTx(s.Context(), nil)
		if err == nil {
			_, err = tx.ExecContext(s.Context(), s.marker(id, 2))
		}
		if err != nil {
			s.Fatal(err)
		}
		// The transaction holds up no other id of the call.
		if got := s.askShop(true, "beside-"+id, id, "with-"+id); got[id] != "UNKNOWN" ||
			got["beside-"+id] != "ROLLED_BACK" || got["with-"+id] != "ROLLED_BACK" {
			s.Errorf("while a transaction with %s is open, the program answers %v", id, got)
		}
		end := tx.Commit
		if outcome == "ROLLED_BACK" {
			end = tx.Rollback
		}
		if err := end(); err != nil {
			s.Fatal(err)
		}
		s.asked(true, id, outcome)
		s.stands(id, outcome)
		s.deletes(id) // no coordinator knows of the message
	}
	lock := s.begin(`INSERT INTO orders (id, amount) VALUES ('long', 1)`)
	done := s.ordering("long", 7)
	s.blocked()
	s.asked(true, "long", "UNKNOWN")
	if err := lock.Rollback(); err != nil {
		s.Fatal(err)
	}
	if a := <-done; a.status != http.StatusOK {
		s.Errorf("a long order is answered %+v", a)
	}
}

// keepsStoring asks while the answer to a half message is on its way.
func (s *shop) keepsStoring() {
	stored, act := s.holds("SendHalfMessage after", "storing")
	done := s.ordering("storing", 3)
	s.wait(stored, "the half message is stored")
	s.asked(true, "storing", "UNAVAILABLE")
	s.stands("storing", "UNKNOWN")
	act <- wire.Cut // the program makes the same call again
	if a := <-done; a.status != http.StatusOK {
		s.Errorf("an order whose half message was sent twice is answered %+v", a)
	}
}

// keepsUnbegun has the database refuse the marker of an order, and hides the order from the coordinator meanwhile.
func (s *shop) keepsUnbegun() {
	s.on("confirm before", "unbegun", func() wire.Act { return wire.Cut })
	s.on("Submit before", "unbegun", func() wire.Act {
		s.on("confirm before", "unbegun", nil)
		return wire.Pass
	})
	s.exec(`ALTER TABLE msghandler_markers ADD CONSTRAINT unbegun CHECK (verdict <> 2 OR id <> 'unbegun')`)
	s.ordered("unbegun", 4, http.StatusServiceUnavailable, "")
	s.stands("unbegun", "UNKNOWN")
	s.exec(`ALTER TABLE msghandler_markers DROP CONSTRAINT unbegun`)
	s.ordered("unbegun", 4, http.StatusOK, "VERDICT_COMMITTED")
}

// failsLate has another replica answer the last question before the transaction begins.
func (s *shop) failsLate() {
	stored, act := s.holds("SendHalfMessage after", "late")
	done := s.ordering("late", 3)
	s.wait(stored, "the half message is stored")
	s.exec(s.marker("late", 3))
	act <- wire.Pass
	if a := <-done; a.status != http.StatusConflict || a.Stands != "VERDICT_ROLLED_BACK" {
		s.Errorf("an order that came late is answered %+v", a)
	}
	if n := s.count(`SELECT COUNT(*) FROM orders WHERE id = 'late'`); n != 0 {
		s.Error("a business has committed behind a tombstone")
	}
}

func (s *shop) deletes(ids ...string) {
	s.Helper()
	if a := s.post("/deleteBusiness", "Bearer "+token, s.question(false, ids...)); a.status != http.StatusOK {
		s.Errorf("deleteBusiness is answered %+v", a)
	}
}

func (s *shop) deletesTwice() {
	s.deletes("paid", "declined", "never-heard-of")
	s.deletes("paid", "paid")
	s.asked(true, "paid", "COMMITTED")
	s.asked(false, "never-heard-of", "UNKNOWN")
	const day = 24 * 3600 * 1000
	for id, days := range map[string]int{"old": 8, "young": 6} {
		s.asked(true, id, "ROLLED_BACK")
		s.exec(fmt.Sprintf(`UPDATE msghandler_markers SET cleaned_at = cleaned_at - %d WHERE id = '%s'`, days*day, id))
	}
	s.deletes("paid")
	s.stands("old", "UNKNOWN")
	s.stands("young", "ROLLED_BACK")
}

func (s *shop) refusesMalformed() {
	for what, body := range map[string]string{
		"nothing":             ``,
		"no JSON":             `ids=1`,
		"half of a question":  `{"producer": "` + s.name + `", "ids": ["x1"], "final": tr`,
		"a list":              `["x1"]`,
		"null":                `null`,
		"no producer":         `{"ids": ["x1"], "final": true}`,
		"no ids":              `{"producer": "` + s.name + `", "final": true}`,
		"ids as a text":       `{"producer": "` + s.name + `", "ids": "x1", "final": true}`,
		"an id as a number":   `{"producer": "` + s.name + `", "ids": ["x1", 7], "final": true}`,
		"half of a character": `{"producer": "` + s.name + `", "ids": ["x1", "\ud800"], "final": true}`,
		"final as a text":     `{"producer": "` + s.name + `", "ids": ["x1"], "final": "true"}`,
	} {
		if a := s.post("/confirm", "Bearer "+token, body); a.status != http.StatusBadRequest {
			s.Errorf("%s is answered %+v, want status 400", what, a)
		}
	}
	other := `{"producer": "payments", "ids": ["x1"], "final": true}`
	if a := s.post("/confirm", "Bearer "+token, other); a.status != http.StatusConflict {
		s.Errorf("a question to another producer is answered %+v, want status 409", a)
	}
	// A program may close the connection before it has read too much.
	long := strings.Replace(s.question(true, "x1"), "{", `{"x": "`+strings.Repeat("x", 1<<20)+`", `, 1)
	if a := s.post("/confirm", "Bearer "+token, long); a.status == http.StatusOK {
		s.Errorf("a question of more than 1 MiB is answered %+v", a)
	}
	s.stands("x1", "UNKNOWN")
	// A later coordinator may say more.
	later := strings.Replace(s.question(false, "x1"), "{", `{"attempt": 3, `, 1)
	if a := s.post("/confirm", "Bearer "+token, later); a.status != http.StatusOK {
		s.Errorf("a question with a field of a later version is answered %+v", a)
	}
}

func (s *shop) refusesStrangers() {
	for what, authorization := range map[string]string{
		"no token": "", "no scheme": token, "another token": "Bearer guessed", "another scheme": "Basic " + token,
		"an empty token": "Bearer ", "a comment of the file": "Bearer # of the coordinators",
	} {
		for _, path := range []string{"/confirm", "/deleteBusiness"} {
			a := s.post(path, authorization, s.question(path == "/confirm", "guessed"))
			if a.status != http.StatusUnauthorized {
				s.Errorf("%s with %s is answered %+v, want status 401", path, what, a)
			}
		}
	}
	s.stands("guessed", "UNKNOWN")
	if a := s.post("/confirm", "Bearer "+otherToken, s.question(false, "guessed")); a.status != http.StatusOK {
		s.Errorf("the other token of the file is answered %+v", a)
	}
}

func (s *shop) livesWithoutDatabase() {
	s.way.Cut()
	s.asked(false, "paid", "UNAVAILABLE")
	s.asked(true, "away", "UNAVAILABLE")
	a := s.post("/deleteBusiness", "Bearer "+token, s.question(false, "paid"))
	if a.status != http.StatusServiceUnavailable {
		s.Errorf("without a database deleteBusiness is answered %+v", a)
	}
	s.ordered("away", 4, http.StatusServiceUnavailable, "")
	s.way.Restore()
	s.ordered("away", 4, http.StatusOK, "VERDICT_COMMITTED")
}

// findsCommits loses a COMMIT, and the answer to another COMMIT.
func (s *shop) findsCommits() {
	for id, lost := range map[string]wire.Phase{"commit-lost": wire.Request, "answer-lost": wire.Reply} {
		s.settled()
		_, act := s.holdsCommit(lost, id)
		act <- wire.Cut
		if lost == wire.Request {
			s.ordered(id, 6, http.StatusUnprocessableEntity, "VERDICT_ROLLED_BACK")
			s.stands(id, "ROLLED_BACK")
		} else {
			s.ordered(id, 6, http.StatusOK, "VERDICT_COMMITTED")
			s.stands(id, "COMMITTED")
		}
	}
}

// leavesDoubts loses the answer to a COMMIT, and the database with it: the program cannot know what stands.
func (s *shop) leavesDoubts() {
	s.settled()
	reached, act := s.holdsCommit(wire.Reply, "doubtful")
	done := s.ordering("doubtful", 6)
	s.wait(reached, "the order has committed")
	s.way.Cut()
	act <- wire.Cut
	if a := <-done; a.status != http.StatusServiceUnavailable {
		s.Errorf("an order whose COMMIT is in doubt is answered %+v, want status 503", a)
	}
	s.way.Restore()
	s.settled()
	s.ordered("doubtful", 6, http.StatusOK, "VERDICT_COMMITTED")
}

// leavesHeldIDs loses a COMMIT, and has another transaction hold the id: settle finds no verdict.
func (s *shop) leavesHeldIDs() {
	for n := range 5 {
		if s.leavesHeldID(fmt.Sprintf("held-%d", n)) {
			return
		}
	}
	s.Fatal("settle had each id before the other transaction")
}

// leavesHeldID says whether the other transaction had the id: settle competes for it.
func (s *shop) leavesHeldID(id string) bool {
	s.settled()
	reached, act := s.holdsCommit(wire.Request, id)
	done := s.ordering(id, 6)
	s.wait(reached, "the order is about to commit")
	held, tx := make(chan error, 1), s.begin(`SELECT 1`)
	go func() {
		_, err := tx.ExecContext(s.Context(), s.marker(id, 2))
		held <- err
	}()
	s.blocked()
	act <- wire.Cut
	err := <-held
	a := <-done
	_ = tx.Rollback() // nothing depends on the transaction any more
	if err == nil && a.status != http.StatusServiceUnavailable {
		s.Errorf("an order whose id is held is answered %+v, want status 503", a)
	}
	return err == nil
}

// callsBehindTheRow looks into the table when a Submit or a Rollback is on its way.
func (s *shop) callsBehindTheRow() {
	for id, amount := range map[string]int{"behind-commit": 5, "behind-tombstone": -5} {
		call, want, status := "Submit before", marker.Committed, http.StatusOK
		if amount < 0 {
			call, want, status = "Rollback before", marker.RolledBack, http.StatusUnprocessableEntity
		}
		var stood marker.Verdict
		called := make(chan struct{})
		var first sync.Once
		s.on(call, id, func() wire.Act {
			first.Do(func() {
				found, _ := s.markers.Lookup(context.Background(), []string{id}, false)
				stood = found[id]
				close(called)
			})
			return wire.Pass
		})
		if a := s.order(id, amount); a.status != status {
			s.Errorf("the order %s is answered %+v, want status %d", id, a, status)
		}
		s.wait(called, call+" "+id)
		if stood != want {
			s.Errorf("%s is called for %s while the table says %v, want %v", strings.Fields(call)[0], id, stood, want)
		}
	}
}

// keepsApart has another producer commit under an id of this one, in the same table.
func (s *shop) keepsApart() {
	const other = `producer = 'other' AND id = 'shared' AND cleaned_at IS NULL`
	s.exec(`INSERT INTO msghandler_markers (producer, id, verdict, created_at) VALUES ('other', 'shared', 2, 1)`)
	s.asked(false, "shared", "UNKNOWN")
	s.asked(true, "shared", "ROLLED_BACK")
	s.deletes("shared")
	if n := s.count(`SELECT COUNT(*) FROM msghandler_markers WHERE ` + other); n != 1 {
		s.Error("the marker of another producer is deleted")
	}
	s.exec(`DELETE FROM msghandler_markers WHERE ` + other)
}

func (s *shop) losesSubmit() {
	s.on("Submit before", "silent", func() wire.Act { return wire.Cut })
	s.ordered("silent", 8, http.StatusOK, "VERDICT_COMMITTED")
}

// takesMany places orders at once, of which each third fails. A client repeats an order that is answered 503, such as
// after a deadlock.
func (s *shop) takesMany() {
	const orders = 60
	amountOf := func(i int) int { return i%3*10 - 5 }
	done := make([]<-chan answer, orders)
	for i := range done {
		done[i] = s.ordering(fmt.Sprintf("crowd-%d", i), amountOf(i))
	}
	for i := range done {
		a, id := <-done[i], fmt.Sprintf("crowd-%d", i)
		for tries := 0; a.status == http.StatusServiceUnavailable && tries < 20; tries++ {
			s.Logf("%s once more: %s", id, a.Error)
			a = s.order(id, amountOf(i))
		}
		want := http.StatusOK
		if amountOf(i) < 0 {
			want = http.StatusUnprocessableEntity
		}
		if a.status != want {
			s.Errorf("the order %s is answered %+v, want status %d", id, a, want)
		}
	}
}

func (s *shop) answersBatches() {
	var ids []string
	for i := range 500 {
		ids = append(ids, fmt.Sprintf("many-%03d", i))
	}
	for _, final := range []bool{false, true} {
		got := s.askShop(final, append(ids, "paid")...)
		want := map[bool]string{false: "UNKNOWN", true: "ROLLED_BACK"}[final]
		for _, id := range ids {
			if got[id] != want {
				s.Fatalf("among 500 ids %s is answered %q, want %s", id, got[id], want)
			}
		}
		if got["paid"] != "COMMITTED" {
			s.Errorf("among 500 ids a committed id is answered %q", got["paid"])
		}
	}
	s.deletes(ids...)
}

// passesVerification runs the command of an operator on the program. The command asks about an order of before, and
// leaves tombstones.
func (s *shop) passesVerification() {
	var output strings.Builder
	status := cli.Run(s.Context(), commandline.Process{
		Args: []string{"verify-producer", s.name, "http://" + s.listen, "--committed", "paid"},
		Env: []string{
			"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*", "MSGHANDLER_CALLBACKS_TOKEN_FILE=" + s.coordinator.token,
		},
		In: strings.NewReader(""), Out: &output, Err: &output,
	})
	if status != 0 || strings.Contains(output.String(), "WARN") {
		s.Errorf("verify-producer says (%d):\n%s", status, output.String())
	}
}
