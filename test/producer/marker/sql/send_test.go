package sql_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// accepting is a coordinator that takes every message and records the submitted ids.
type accepting struct {
	pb.UnimplementedMessageHandlerServiceServer

	mu         sync.Mutex
	submitted  []string
	rolledBack []string
}

func (a *accepting) SendHalfMessages(
	_ context.Context, r *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	return &pb.SendHalfMessagesResponse{Outcomes: pending(len(r.GetMessages()))}, nil
}

func (a *accepting) SubmitAll(_ context.Context, r *pb.SubmitAllRequest) (*pb.SubmitAllResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.submitted = append(a.submitted, r.GetIds()...)
	return &pb.SubmitAllResponse{Outcomes: pending(len(r.GetIds()))}, nil
}

func (a *accepting) Rollback(_ context.Context, r *pb.RollbackRequest) (*pb.RollbackResponse, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rolledBack = append(a.rolledBack, r.GetId())
	return &pb.RollbackResponse{State: pb.State_STATE_ROLLED_BACK}, nil
}

func pending(n int) []*pb.Outcome {
	outcomes := make([]*pb.Outcome, n)
	for i := range outcomes {
		outcomes[i] = &pb.Outcome{State: pb.State_STATE_PENDING}
	}
	return outcomes
}

// sender is a producer with these markers and an accepting coordinator.
func sender(t *testing.T, s *sqlmarker.Store) (*producer.Producer, *accepting) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, a := grpc.NewServer(), &accepting{}
	pb.RegisterMessageHandlerServiceServer(server, a)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: listener.Addr().String(), Markers: s, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Close(context.Background())
		server.Stop()
		serving.Wait()
	})
	return p, a
}

// The caller's own transaction without a marker has no protection, so the call must fail.
func TestTransactionWithoutMarkerReturnsErrUnmarked(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		s := d.store(t, db, nil)
		orders(t, db)
		p, a := sender(t, s)
		own := func(id string, mark bool) func(context.Context) error {
			return func(ctx context.Context) error {
				tx, err := db.BeginTx(ctx, nil)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback() }()
				if mark {
					if err := s.Mark(ctx, tx, id); err != nil {
						return err
					}
				}
				if err := insertOrder(d.dialect, id)(ctx, tx); err != nil {
					return err
				}
				return producer.Unsure(tx.Commit())
			}
		}
		ways := map[string]func(id string) error{
			"Send": func(id string) error { return s.Send(t.Context(), p, message(id), insertOrder(d.dialect, id)) },
			"InTx": func(id string) error {
				return p.Send(t.Context(), message(id), s.InTx(message(id), insertOrder(d.dialect, id)))
			},
			"Mark":    func(id string) error { return p.Send(t.Context(), message(id), own(id, true)) },
			"nothing": func(id string) error { return p.Send(t.Context(), message(id), own(id, false)) },
		}
		for way, send := range ways {
			if err := send(way); errors.Is(err, producer.ErrUnmarked) != (way == "nothing") || err != nil && way != "nothing" {
				t.Errorf("by %s: %v", way, err)
			}
		}
		if err := p.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		// All four have committed, so all four messages go out.
		if slices.Sort(a.submitted); !slices.Equal(a.submitted, []string{"InTx", "Mark", "Send", "nothing"}) {
			t.Errorf("submitted %q", a.submitted)
		}
		if v := final(t, s, "nothing")["nothing"]; v != marker.Committed {
			t.Errorf("the marker for the missing transaction says %v", v)
		}
	})
}
