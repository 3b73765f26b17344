package faults

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// direct is a client of one coordinator alone, without the SDK. The messages belong to one of the load's producers.
type direct struct {
	w        *world
	at       string
	producer string
	api      pb.MessageHandlerServiceClient
	admin    adminv1.AdminServiceClient
}

func newDirect(w *world, at, producer string) *direct {
	w.t.Helper()
	// A coordinator that was killed and has restarted is used at once.
	again := backoff.Config{
		BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
		MaxDelay: 200 * time.Millisecond,
	}
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: 5 * time.Second}))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return &direct{
		w: w, at: at, producer: producer,
		api: pb.NewMessageHandlerServiceClient(conn), admin: adminv1.NewAdminServiceClient(conn),
	}
}

func (d *direct) key(id string) string { return d.producer + "/" + id }

// send sends a half message. If the half message was accepted, its business commits and stays silent.
func (d *direct) send(ctx context.Context, id string) codes.Code {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	key, body := d.key(id), []byte("body of "+id)
	headers := headersOf(id)
	d.w.ledger.Sending(key, NewContent(exchange, d.producer, headers, body))
	_, err := d.api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: d.producer, CallbackTarget: d.w.wiring.callbackOf(d.producer),
		Message: &pb.Message{Id: id, Exchange: exchange, RoutingKey: d.producer, Headers: headers, Body: body},
	})
	d.w.ledger.Noted(key, "producer", "SendHalfMessage at "+d.at+" returns "+status.Code(err).String())
	if err == nil {
		d.w.ledger.Accepted(key)
		d.w.ledger.Decide(key, Committed)
	}
	return status.Code(err)
}

// deliver submits a message and waits until the broker has it.
func (d *direct) deliver(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := d.api.Submit(ctx, &pb.SubmitRequest{Producer: d.producer, Id: id, Wait: pb.Wait_WAIT_DONE})
	return err
}

// insist does all of this for a message, and repeats each call until the call has an answer.
func (d *direct) insist(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for d.send(ctx, id) != codes.OK {
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for {
		if err := d.deliver(ctx, id); err == nil || ctx.Err() != nil {
			return err
		}
	}
}

// look asks for a message's state, and whether there is a lease holder.
func (d *direct) look(ctx context.Context, name halfmsg.Name) (state pb.State, leased bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	answer, err := d.admin.GetMessage(ctx, &adminv1.GetMessageRequest{Producer: name.Producer, Id: name.ID})
	if status.Code(err) == codes.NotFound {
		return pb.State_STATE_UNSPECIFIED, false, nil
	}
	return answer.GetRecord().GetState(), answer.GetRecord().GetLeaseOwner() != "", err
}

// answers are the answers to direct clients, by key.
type answers struct {
	mu   sync.Mutex
	code map[string]codes.Code
}

func (a *answers) note(key string, code codes.Code) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.code == nil {
		a.code = map[string]codes.Code{}
	}
	a.code[key] = code
}

// of is the client's answer for its message, if the message was waiting.
func (a *answers) of(key string) (code codes.Code, direct bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	code, direct = a.code[key]
	return code, direct
}
