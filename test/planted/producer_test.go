package planted

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	unknown     = pb.Verdict_VERDICT_UNKNOWN
	isCommitted = pb.Verdict_VERDICT_COMMITTED
	isRolled    = pb.Verdict_VERDICT_ROLLED_BACK
	unavailable = pb.Verdict_VERDICT_UNAVAILABLE
)

// table is the database of a producer: all rows are committed.
type table struct {
	mu   sync.Mutex
	rows map[string]row
}

type row struct {
	verdict pb.Verdict
	at      time.Time
}

func newTable(b bug) *table {
	past := time.Now().Add(-time.Hour)
	rows := map[string]row{committedID: {isCommitted, past}, rolledBackID: {isRolled, past}}
	if b.name != "deleted-is-rolled-back" { // there DeleteBusiness has removed the row
		rows[deletedID] = row{isCommitted, past}
	}
	return &table{rows: rows}
}

// wrong is a producer with the barrier, and one bug.
type wrong struct {
	pb.UnimplementedProducerServiceServer
	bug string
	// db is nil while the database is away.
	db *table
	// memory holds verdicts that belong into db.
	memory map[string]pb.Verdict
	turn   sync.Mutex
}

// newWrong returns a producer on a database. Two producers on one database are two replicas, or one before and after
// its restart.
func newWrong(b bug, db *table) *wrong {
	if b.withoutDatabase() {
		db = nil
	}
	return &wrong{bug: b.name, db: db, memory: map[string]pb.Verdict{}}
}

// serve returns the address of the producer.
func (w *wrong) serve(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, w)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// admit is the first thing of each call.
func (w *wrong) admit(ctx context.Context, name string) error {
	shown := metadata.ValueFromIncomingContext(ctx, "authorization")
	if w.bug != "lets-anyone-in" && (len(shown) != 1 || shown[0] != "Bearer "+token) {
		return status.Error(codes.Unauthenticated, "no token of a coordinator")
	}
	if w.bug != "answers-for-others" && name != "orders" {
		return status.Error(codes.FailedPrecondition, "this is the producer orders")
	}
	return nil
}

func (w *wrong) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if err := w.admit(ctx, r.GetProducer()); err != nil {
		return nil, err
	}
	ids := r.GetIds()
	switch {
	case w.bug == "nothing-panics" && len(ids) == 0:
		return nil, status.Error(codes.Internal, "index out of range [0] with length 0")
	case w.bug == "full-batch-fails" && len(ids) > 200:
		return nil, status.Error(codes.Internal, "too many SQL variables")
	case w.bug == "query-for-each-id":
		<-time.After(time.Duration(len(ids)) * 2500 * time.Microsecond) // as long as this fault takes
	case w.bug == "one-question-at-a-time" && len(ids) == 50:
		w.turn.Lock()
		defer w.turn.Unlock()
		<-time.After(700 * time.Millisecond)
	case w.bug == "only-the-first-id" && len(ids) > 1:
		ids = ids[:1]
	}
	answer := &pb.ConfirmResponse{}
	for _, id := range ids {
		verdict, err := w.verdict(ctx, id, r.GetFinal())
		if err != nil {
			return nil, err
		}
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: verdict})
		if w.bug == "several-verdicts" {
			answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: unavailable})
		}
	}
	if w.bug == "verdicts-by-place" {
		byPlace(answer.Confirmations)
	}
	return answer, nil
}

// byPlace gives the verdicts of the rows, which come first, to the first ids.
func byPlace(all []*pb.Confirmation) {
	place := 0
	for _, c := range all {
		if c.GetVerdict() != unknown {
			verdict := c.GetVerdict()
			c.Verdict = all[place].GetVerdict()
			all[place].Verdict = verdict
			place++
		}
	}
}

// verdict is the verdict about one id.
func (w *wrong) verdict(ctx context.Context, id string, final bool) (pb.Verdict, error) {
	if w.bug == "committed-while-running" && id == runningID {
		return isCommitted, nil // a marker in memory, before COMMIT
	}
	if w.db == nil {
		return w.withoutDatabase(), nil
	}
	key := w.key(id)
	verdict := w.look(key)
	switch {
	case verdict == 0 && final && w.bug != "ignores-final":
		return w.settle(key), nil
	case verdict != 0 && final && w.bug == "final-only-once" && verdict == isRolled:
		return 0, status.Error(codes.Internal, "UNIQUE constraint failed: markers.id")
	case verdict == isRolled && w.bug == "tombstone-stays-locked" && key != rolledBackID:
		<-ctx.Done() // the transaction of the tombstone was never committed
		return 0, ctx.Err()
	case verdict == isCommitted && w.bug == "marker-read-once":
		w.db.remove(key)
	case verdict == 0 && w.bug == "unknown-is-an-error":
		return 0, status.Error(codes.NotFound, "no such order")
	case verdict == 0 && w.bug == "commits-unknown":
		return isCommitted, nil
	case verdict == 0 && w.bug == "no-row-is-rolled-back":
		return isRolled, nil
	case verdict == 0:
		return unknown, nil
	}
	return verdict, nil
}

// key is the id as the database has it.
func (w *wrong) key(id string) string {
	switch {
	case w.bug == "lowers-ids":
		return strings.ToLower(id)
	case w.bug == "cuts-ids" && len(id) > 64:
		return id[:64]
	}
	return id
}

// look returns the verdict of a row, and 0 without a row.
func (w *wrong) look(key string) pb.Verdict {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	if verdict, known := w.memory[key]; known {
		return verdict
	}
	r := w.db.rows[key]
	if w.bug == "lagging-replica" && time.Since(r.at) < time.Minute {
		return 0
	}
	return r.verdict
}

// settle plants the tombstone and answers what stands.
func (w *wrong) settle(key string) pb.Verdict {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	switch w.bug {
	case "final-without-tombstone":
	case "tombstone-in-memory", "replica-with-memory":
		w.memory[key] = isRolled
	default:
		w.db.rows[key] = row{isRolled, time.Now()}
	}
	return isRolled
}

func (d *table) remove(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.rows, key)
}

// withoutDatabase is the answer when the database cannot be asked.
func (w *wrong) withoutDatabase() pb.Verdict {
	switch w.bug {
	case "database-away-is-rolled-back":
		return isRolled
	case "database-away-is-unknown":
		return unknown
	}
	return unavailable
}

func (w *wrong) DeleteBusiness(
	ctx context.Context, r *pb.DeleteBusinessRequest,
) (*pb.DeleteBusinessResponse, error) {
	if err := w.admit(ctx, r.GetProducer()); err != nil {
		return nil, err
	}
	for _, id := range r.GetIds() {
		switch {
		case w.bug == "deletes-hard":
			w.db.remove(id)
		case w.bug == "deleting-unknown-fails" && w.look(id) == 0:
			return nil, status.Error(codes.NotFound, "no such order")
		}
	}
	return &pb.DeleteBusinessResponse{}, nil
}
