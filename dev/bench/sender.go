package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// patience bounds the wait for a message: longer than a busy coordinator, or a takeover by another, needs.
	patience = 30 * time.Second
	// gatherMax and gatherParallel are the SDK's values.
	gatherMax, gatherParallel = 500, 4
)

// sender is a producer of the load.
type sender struct {
	name   string
	mode   Mode
	queues []string
	bodies order.Bodies
	after  time.Duration
	target string

	sdk     *producer.Producer
	markers *memory.Store
	server  *grpc.Server
	serving sync.WaitGroup
	conns   []connection
	// turn counts calls, which go to the coordinators in turn, and sent half messages, which go to the queues.
	turn, sent atomic.Uint64
	submits    *batch.Group[string, error]
}

// connection is a connection to a coordinator.
type connection interface {
	grpc.ClientConnInterface
	Close() error
}

func (r *run) newSender(name string, coordinators []string) (*sender, error) {
	listener, err := net.Listen("tcp", r.config.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve the callbacks: %w", err)
	}
	s := &sender{
		name: name, mode: r.config.Mode, queues: r.queues.names, bodies: r.bodies, after: r.config.ConfirmAfter,
		target: listener.Addr().String(), markers: memory.New(), server: grpc.NewServer(),
	}
	if r.config.Target != "" {
		s.target = r.config.Target
	}
	s.sdk, err = producer.New(producer.Config{
		Name: name, Coordinator: strings.Join(coordinators, ","), CallbackTarget: s.target, Markers: s.markers,
		ConfirmAfter: s.after, SendTimeout: patience, Background: maxOpen, Logger: r.config.Logger,
		TLS: r.config.TLS, Token: r.config.Token,
		Coordinators: producer.Coordinators{Anyone: true}, // the messages are worth nothing
	})
	if err == nil {
		err = s.connect(coordinators, &r.config)
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	s.submits = batch.New(batch.Config{
		Max: gatherMax, Parallel: gatherParallel, Waiting: most, Timeout: patience,
	}, s.submitAll)
	s.sdk.Register(s.server)
	s.serving.Go(func() { _ = s.server.Serve(listener) }) // Serve ends with close
	return s, nil
}

// token is shown on each call.
type token string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(t)}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (token) RequireTransportSecurity() bool { return false }

func (s *sender) connect(coordinators []string, config *Config) error {
	transport := insecure.NewCredentials()
	if config.TLS != nil {
		transport = credentials.NewTLS(config.TLS)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport), grpc.WithNoProxy()}
	if config.Token != "" { // without TLS only on the loopback, as the SDK has checked
		options = append(options, grpc.WithPerRPCCredentials(token(config.Token)))
	}
	for _, address := range coordinators {
		conn, err := grpc.NewClient(address, options...)
		if err != nil {
			return fmt.Errorf("%q is not a coordinator's address; write host:port: %w", address, err)
		}
		s.conns = append(s.conns, conn)
	}
	return nil
}

// coordinator returns the coordinators in turn.
func (s *sender) coordinator() pb.MessageHandlerServiceClient {
	return pb.NewMessageHandlerServiceClient(s.conns[s.turn.Add(1)%uint64(len(s.conns))])
}

// next returns the content of the next half message: the routing key of the queue in turn, and a body.
func (s *sender) next() (routingKey string, body []byte) {
	n := s.sent.Add(1)
	return s.queues[n%uint64(len(s.queues))], s.bodies.Of(n)
}

// half stores a half message.
func (s *sender) half(ctx context.Context, id string) error {
	state, err := s.sendHalf(ctx, id)
	if err == nil && state != producer.StatePending {
		err = fmt.Errorf("%s, which is new, is %v already", id, state)
	}
	if err != nil {
		// The transaction does not run, and a coordinator that stored the message anyway must learn so.
		_, failed := s.markers.Put(context.WithoutCancel(ctx), []string{id}, marker.RolledBack)
		err = errors.Join(err, failed)
	}
	return err
}

func (s *sender) sendHalf(ctx context.Context, id string) (producer.State, error) {
	routingKey, body := s.next()
	if s.mode == Gathered {
		return s.sdk.SendHalf(ctx, producer.Message{ID: id, RoutingKey: routingKey, Body: body})
	}
	response, err := s.coordinator().SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: s.name, CallbackTarget: s.target, ConfirmAfter: durationpb.New(s.after),
		Message: &pb.Message{Id: id, RoutingKey: routingKey, Body: body},
	})
	return response.GetState(), err
}

// commit stands for the local transaction, which writes only the marker.
func (s *sender) commit(ctx context.Context, id string) error {
	_, err := s.markers.Put(ctx, []string{id}, marker.Committed)
	return err
}

func (s *sender) rollback(ctx context.Context, id string) error {
	return s.sdk.Rollback(ctx, id, "")
}

// submit submits a message and waits for the broker's acknowledgement.
func (s *sender) submit(ctx context.Context, id string) error {
	if s.mode == Gathered {
		results, err := s.submits.Do(ctx, id)
		if err != nil {
			return err
		}
		return results[0]
	}
	response, err := s.coordinator().Submit(ctx, &pb.SubmitRequest{Producer: s.name, Id: id, Wait: pb.Wait_WAIT_DONE})
	return judge(response.GetState(), err)
}

func (s *sender) submitAll(ctx context.Context, ids []string) []error {
	errs := make([]error, len(ids))
	request := &pb.SubmitAllRequest{Producer: s.name, Ids: ids, Wait: pb.Wait_WAIT_DONE}
	response, err := s.coordinator().SubmitAll(ctx, request)
	for i := range errs {
		switch outcomes := response.GetOutcomes(); {
		case err != nil:
			errs[i] = err
		case i >= len(outcomes):
			errs[i] = errors.New("the answer leaves a message out")
		case outcomes[i].GetCode() != 0:
			errs[i] = status.Error(codes.Code(outcomes[i].GetCode()), outcomes[i].GetError()) //nolint:gosec // codes are small
		default:
			errs[i] = judge(outcomes[i].GetState(), nil)
		}
	}
	return errs
}

func judge(state pb.State, err error) error {
	if err == nil && state != pb.State_STATE_DONE {
		err = fmt.Errorf("the message ended as %v", state)
	}
	return err
}

// close ends the producer, which answers the coordinators until then.
func (s *sender) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := s.sdk.Close(ctx)
	for _, conn := range s.conns {
		_ = conn.Close()
	}
	s.server.Stop()
	s.serving.Wait()
	return err
}

// explain turns an error of tryOut into an error for the operator.
func explain(err error, target string) error {
	code := status.Code(err)
	var failure *producer.Error
	if errors.As(err, &failure) {
		code = failure.Code
	}
	switch code {
	case codes.PermissionDenied:
		return fmt.Errorf("the coordinator may not call back %s, where this load answers; "+
			"add the address to callbacks.allow, or name an allowed address: %w", target, err)
	case codes.Unavailable, codes.DeadlineExceeded:
		return fmt.Errorf("no coordinator accepted the first message; check that one runs and reaches Redis: %w", err)
	}
	return fmt.Errorf("the first message was not accepted: %w", err)
}
