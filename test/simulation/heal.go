package simulation

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/faults"
)

const (
	// mostIdle is for how many looks copies may be on their way from the broker to a consumer.
	mostIdle = 12
	// after is how long the world goes on when all is final: nothing may come then.
	after = 2 * time.Minute
)

// standing is a message that is not final, or parked.
type standing struct {
	key    string
	record *adminv1.MessageRecord
}

// heal ends the faults, and waits until everything is final.
func (w *World) heal() {
	w.stopFaults()
	w.note("healing")
	idle := 0
	for end := time.Now().Add(w.pace.healing); time.Now().Before(end); time.Sleep(w.pace.look) {
		underway, err := w.messages(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE, pb.State_STATE_ACKNOWLEDGED)
		underway = withoutHeld(slices.DeleteFunc(underway, w.waitsElsewhere))
		if err != nil || len(underway) > 0 || w.rowsWait() {
			idle = 0
			continue
		}
		if idle++; w.arrived() || idle > mostIdle {
			break // what is not on its way any more never comes
		}
	}
	w.note("healed")
	time.Sleep(after)
}

// waitsElsewhere says that a message names markers of a database that is not there any more: it waits for an operator.
func (w *World) waitsElsewhere(s standing) bool {
	return w.faulty.excuse.elsewhere && marksInSQL(s.key) &&
		strings.Contains(s.record.GetLastError(), "the messages name the marker store")
}

// isUnprotected says that two processes without a common transaction may have used up the questions of a message: the
// one that is asked knows nothing of what the other one is doing.
func isUnprotected(s standing) bool {
	return strings.HasPrefix(s.key, replicatedName+"/") && s.record.GetState() == pb.State_STATE_ABANDONED
}

// isPromised says that a message was submitted where Submits are trusted, so that no question may park it.
func (w *World) isPromised(s standing) bool {
	return w.direct != nil && !w.faulty.excuse.forgets && s.record.GetState() == pb.State_STATE_ABANDONED &&
		w.direct.isTrusted(s.key)
}

// withoutHeld leaves out the messages that wait for a message of their chain that is not on its way.
func withoutHeld(underway []standing) []standing {
	keys := map[string]bool{}
	for _, s := range underway {
		keys[s.key] = true
	}
	return slices.DeleteFunc(underway, func(s standing) bool { return s.heldBy() != "" && !keys[s.heldBy()] })
}

// heldBy is the message of its chain that a message waits for; empty where it waits for none.
func (s standing) heldBy() string {
	if s.record.GetHeldBy() == "" {
		return ""
	}
	return s.record.GetProducer() + "/" + s.record.GetHeldBy()
}

// arrived says whether each committed message came, or is parked.
func (w *World) arrived() bool {
	undelivered := w.Ledger.Undelivered()
	if len(undelivered) == 0 {
		return true
	}
	for key, e := range undelivered {
		if w.isForgotten(key, e.AcceptedAt) || w.acts.hasDiscarded(key) || w.losses.hasLost(key) {
			delete(undelivered, key)
		}
	}
	standing, err := w.messages(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE, pb.State_STATE_ABANDONED,
		pb.State_STATE_DEAD)
	return err == nil && len(undelivered) <= len(standing)+len(w.failedRows())
}

// failedRows are the messages of the plain outbox that the broker has refused until their attempts were used up. They
// stay in their table, as DEAD ones do in Redis.
func (w *World) failedRows() (all []standing) {
	if w.outbox == nil {
		return nil
	}
	for _, row := range w.outbox.rows("SELECT id FROM " + sqlmarker.DefaultOutboxTable + " WHERE state = 4") {
		all = append(all, standing{insertingName + "/" + textOf(row[0]), &adminv1.MessageRecord{State: pb.State_STATE_DEAD}})
	}
	return all
}

// admin returns a client of a coordinator for operators, and what closes its connection.
func (w *World) admin(node *Node) (client adminv1.AdminServiceClient, closeConn func(), err error) {
	conn, err := grpc.NewClient("passthrough:///"+node.Address,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return w.observer.Dial(ctx, "tcp", addr)
		}))
	if err != nil {
		return nil, nil, err
	}
	return adminv1.NewAdminServiceClient(conn), func() { _ = conn.Close() }, nil
}

// messages lists the messages in some states.
func (w *World) messages(states ...pb.State) (all []standing, err error) {
	client, closeConn, err := w.admin(w.Nodes[0])
	if err != nil {
		return nil, err
	}
	defer closeConn()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, state := range states {
		page, err := client.ListMessages(ctx, &adminv1.ListMessagesRequest{
			Filter: &adminv1.MessageFilter{State: state}, PageSize: 1000,
		})
		if err != nil {
			return nil, err
		}
		for _, r := range page.GetRecords() {
			all = append(all, standing{r.GetProducer() + "/" + r.GetMessage().GetId(), r})
		}
	}
	return all, nil
}

// judge compares the end with the ledger.
func (w *World) judge() {
	underway, err := w.messages(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE, pb.State_STATE_ACKNOWLEDGED)
	parked, errToo := w.messages(pb.State_STATE_ABANDONED, pb.State_STATE_DEAD)
	if err != nil || errToo != nil {
		w.report("STUCK: a coordinator does not list messages when all is repaired: %v %v", err, errToo)
		return
	}
	end := faults.End{
		Underway: map[string]bool{}, Parked: map[string]bool{}, CopiesExplained: len(w.faulty.drawn) > 0,
	}
	end.Counted, end.Open = w.counted()
	w.judgeRegressions()
	if w.effects != nil {
		end.Effects = w.effects.counts()
	}
	waits := map[string]string{}
	excused := map[string]bool{}
	for _, s := range underway {
		excused[s.key] = w.waitsElsewhere(s)
		end.Underway[s.key] = true
		waits[s.key] = waitsFor(s.record)
	}
	for _, s := range append(parked, w.failedRows()...) {
		excused[s.key] = w.databases.heldAtLast(s) || w.faulty.excuse.parks(s) && !w.isPromised(s) ||
			isUnprotected(s)
		end.Parked[s.key] = true
		waits[s.key] = waitsFor(s.record)
	}
	for _, s := range underway {
		excused[s.key] = excused[s.key] || excused[s.heldBy()]
	}
	for _, p := range w.producers {
		if !w.faulty.excuse.stays(p.name()) {
			end.Markers = append(end.Markers, p.markers()...)
		}
	}
	slices.Sort(end.Markers)
	end.Markers = slices.DeleteFunc(end.Markers, func(key string) bool {
		return end.Underway[key] || end.Parked[key] || w.acts.hasDiscarded(key)
	})
	w.judgeActs(end)
	for _, f := range faults.Check(w.Ledger, end) {
		stands := f.Verdict == faults.Stuck || f.Verdict == faults.Parked
		if w.explains(f) || stands && excused[f.Key] {
			continue
		}
		w.report("%s %s: %s; %s", f.Verdict, f.Key, f.Words, waits[f.Key])
		if f.Key != "" {
			w.note("all about %s:\n%s", f.Key, w.Ledger.History(f.Key))
		}
	}
}

// explains says whether the drawn faults explain a finding about a message, wherever the message stands.
func (w *World) explains(f faults.Finding) bool {
	discarded := w.acts.hasDiscarded(f.Key)
	switch f.Verdict {
	case faults.OutOfOrder: // no promise covers the place of a message whose only record is lost
		if w.faulty.excuse.forgets || discarded {
			return true
		}
	case faults.Lost: // or its delivery
		if w.isForgotten(f.Key, w.Ledger.Undelivered()[f.Key].AcceptedAt) || discarded || w.losses.hasLost(f.Key) {
			return true
		}
	case faults.Effect:
		if w.losses.hasLost(f.Key) {
			return true
		}
	default:
	}
	return w.databases.isLost(f.Key) && f.Verdict != faults.Stuck && f.Verdict != faults.Phantom
}

// judgeActs reports what operators, databases and the SDK did against their word.
func (w *World) judgeActs(end faults.End) {
	still := maps.Clone(end.Underway)
	maps.Copy(still, end.Parked)
	for _, wrong := range w.acts.wrong(still) {
		w.report("%s", wrong)
	}
	for _, statement := range w.databases.unknown() {
		w.report("the model database does not know a statement: %s", statement)
	}
	for _, key := range w.notCommitted {
		if w.Ledger.Fate(key) == faults.Committed && !w.databases.isLost(key) {
			w.report("CONTRADICTION %s: its Send said that nothing was committed, and its business is", key)
			w.note("all about %s:\n%s", key, w.Ledger.History(key))
		}
	}
}

// waitsFor says what a message waits for.
func waitsFor(r *adminv1.MessageRecord) string {
	words := []string{
		fmt.Sprintf("%v since %v", r.GetState(), r.GetUpdateTime().AsTime()),
		fmt.Sprintf("due %v", r.GetDueTime().AsTime()),
		fmt.Sprintf("%d questions, %d publishings", r.GetConfirmAttempts(), r.GetPublishAttempts()),
	}
	if r.GetLeaseOwner() != "" {
		words = append(words, "leased by "+r.GetLeaseOwner())
	}
	if r.GetLastError() != "" {
		words = append(words, "last error "+r.GetLastError())
	}
	return strings.Join(words, ", ")
}
