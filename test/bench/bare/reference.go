package bare

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/ground/batch"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	// maxBatch is the largest batch, and the contract's limit for a callback.
	maxBatch = 500
	// halvesParallel and flowParallel are how many batches are in flight at once: enough to keep every part busy, few
	// enough for large batches.
	halvesParallel, flowParallel = 2, 4
	// waitingMost is more than any load brings.
	waitingMost = 1_000_000
	// batchTimeout is how long a batch may take.
	batchTimeout = time.Minute
	// window is the flow-control window of a connection: as much as two cores move in some milliseconds.
	window = 8 << 20
)

// Config describes a Reference.
type Config struct {
	// RedisURL and AMQPURL are the addresses of Redis and the broker; both empty: nothing is stored or published.
	RedisURL, AMQPURL string
	// Prefix begins its keys in Redis.
	Prefix string
}

// message is a message from its half to its end.
type message struct {
	id, key              string
	exchange, routingKey string
	body                 []byte
}

// Reference serves MessageHandlerService with the bare work.
type Reference struct {
	pb.UnimplementedMessageHandlerServiceServer
	store     *store
	publisher *publisher
	server    *grpc.Server
	halves    *batch.Group[*message, error]

	mu       sync.Mutex
	messages map[string]*message
	lanes    map[string]*lane // by producer
}

// lane is a producer's connection for callbacks, and the batches of its submitted messages.
type lane struct {
	producer string
	conn     *grpc.ClientConn
	client   pb.ProducerServiceClient
	flow     *batch.Group[*message, error]
}

// New connects a Reference, which then serves.
func New(config Config) (r *Reference, err error) {
	r = &Reference{messages: map[string]*message{}, lanes: map[string]*lane{}}
	if config.RedisURL != "" {
		if r.store, err = openStore(config.RedisURL, config.Prefix); err != nil {
			return nil, err
		}
		if r.publisher, err = openPublisher(config.AMQPURL); err != nil {
			return nil, errors.Join(err, r.store.close(context.Background()))
		}
	}
	r.halves = batch.New(batch.Config{
		Max: maxBatch, Parallel: halvesParallel, Waiting: waitingMost, Timeout: batchTimeout,
	}, r.storeHalves)
	r.server = grpc.NewServer(grpc.MaxRecvMsgSize(16<<20),
		grpc.InitialWindowSize(window), grpc.InitialConnWindowSize(window))
	pb.RegisterMessageHandlerServiceServer(r.server, r)
	healthv1.RegisterHealthServer(r.server, health.NewServer()) // without health, each producer logs a warning
	return r, nil
}

// Serve serves until ctx ends, and then removes the remaining messages.
func (r *Reference) Serve(ctx context.Context, listener net.Listener) error {
	defer context.AfterFunc(ctx, r.server.Stop)()
	err := r.server.Serve(listener)
	if ctx.Err() != nil {
		err = nil
	}
	for _, l := range r.lanes {
		_ = l.conn.Close()
	}
	if r.publisher != nil {
		r.publisher.close()
		err = errors.Join(err, r.store.close(context.WithoutCancel(ctx)))
	}
	return err
}

// SendHalfMessage implements MessageHandlerService.
func (r *Reference) SendHalfMessage(
	ctx context.Context, request *pb.SendHalfMessageRequest,
) (*pb.SendHalfMessageResponse, error) {
	messages := []*pb.Message{request.GetMessage()}
	if err := r.half(ctx, request.GetProducer(), request.GetCallbackTarget(), messages); err != nil {
		return nil, err
	}
	return &pb.SendHalfMessageResponse{State: pb.State_STATE_PENDING}, nil
}

// SendHalfMessages implements MessageHandlerService.
func (r *Reference) SendHalfMessages(
	ctx context.Context, request *pb.SendHalfMessagesRequest,
) (*pb.SendHalfMessagesResponse, error) {
	messages := request.GetMessages()
	if err := r.half(ctx, request.GetProducer(), request.GetCallbackTarget(), messages); err != nil {
		return nil, err
	}
	return &pb.SendHalfMessagesResponse{Outcomes: outcomes(len(messages), pb.State_STATE_PENDING)}, nil
}

// Submit implements MessageHandlerService, and waits until the message is removed.
func (r *Reference) Submit(ctx context.Context, request *pb.SubmitRequest) (*pb.SubmitResponse, error) {
	if err := r.submit(ctx, request.GetProducer(), []string{request.GetId()}); err != nil {
		return nil, err
	}
	return &pb.SubmitResponse{State: pb.State_STATE_DONE}, nil
}

// SubmitAll implements MessageHandlerService, and waits until the messages are removed.
func (r *Reference) SubmitAll(ctx context.Context, request *pb.SubmitAllRequest) (*pb.SubmitAllResponse, error) {
	ids := request.GetIds()
	if err := r.submit(ctx, request.GetProducer(), ids); err != nil {
		return nil, err
	}
	return &pb.SubmitAllResponse{Outcomes: outcomes(len(ids), pb.State_STATE_DONE)}, nil
}

// Rollback implements MessageHandlerService.
func (r *Reference) Rollback(ctx context.Context, request *pb.RollbackRequest) (*pb.RollbackResponse, error) {
	_, messages := r.take(request.GetProducer(), []string{request.GetId()})
	if len(messages) > 0 && r.store != nil {
		if err := errors.Join(r.store.sendable(ctx, messages), r.store.done(ctx, messages)); err != nil {
			return nil, err
		}
	}
	return &pb.RollbackResponse{State: pb.State_STATE_ROLLED_BACK}, nil
}

func outcomes(n int, state pb.State) []*pb.Outcome {
	all := make([]*pb.Outcome, n)
	for i := range all {
		all[i] = &pb.Outcome{State: state}
	}
	return all
}

// half stores half messages and remembers them.
func (r *Reference) half(ctx context.Context, producer, target string, messages []*pb.Message) error {
	if _, err := r.laneOf(producer, target); err != nil {
		return err
	}
	batch := make([]*message, len(messages))
	for i, m := range messages {
		batch[i] = &message{id: m.GetId(), exchange: m.GetExchange(), routingKey: m.GetRoutingKey(), body: m.GetBody()}
	}
	if err := all(r.halves.Do(ctx, batch...)); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range batch {
		r.messages[m.id] = m
	}
	return nil
}

func (r *Reference) storeHalves(ctx context.Context, messages []*message) []error {
	if r.store == nil {
		return make([]error, len(messages))
	}
	return each(len(messages), r.store.half(ctx, messages))
}

// laneOf returns a producer's lane, which the first half message opens.
func (r *Reference) laneOf(producer, target string) (*lane, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.lanes[producer]; l != nil {
		return l, nil
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window))
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	l := &lane{producer: producer, conn: conn, client: pb.NewProducerServiceClient(conn)}
	l.flow = batch.New(batch.Config{
		Max: maxBatch, Parallel: flowParallel, Waiting: waitingMost, Timeout: batchTimeout,
	}, func(ctx context.Context, messages []*message) []error {
		return each(len(messages), r.finish(ctx, l, messages))
	})
	r.lanes[producer] = l
	return l, nil
}

// submit takes messages from their half to their end.
func (r *Reference) submit(ctx context.Context, producer string, ids []string) error {
	l, messages := r.take(producer, ids)
	if l == nil || len(messages) < len(ids) {
		return status.Error(codes.NotFound, "there is no such message")
	}
	return all(l.flow.Do(ctx, messages...))
}

func (r *Reference) take(producer string, ids []string) (*lane, []*message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	messages := make([]*message, 0, len(ids))
	for _, id := range ids {
		if m := r.messages[id]; m != nil {
			delete(r.messages, id)
			messages = append(messages, m)
		}
	}
	return r.lanes[producer], messages
}

// finish processes a batch: ask, store the verdict, delete the markers, publish, remove.
func (r *Reference) finish(ctx context.Context, l *lane, messages []*message) error {
	ids := make([]string, len(messages))
	for i, m := range messages {
		ids[i] = m.id
	}
	confirmed, err := l.client.Confirm(ctx, &pb.ConfirmRequest{Producer: l.producer, Ids: ids})
	if err != nil {
		return err
	}
	for _, c := range confirmed.GetConfirmations() {
		if c.GetVerdict() != pb.Verdict_VERDICT_COMMITTED {
			return fmt.Errorf("%s is %v", c.GetId(), c.GetVerdict())
		}
	}
	if r.store != nil {
		err = r.store.sendable(ctx, messages)
	}
	if err == nil {
		_, err = l.client.DeleteBusiness(ctx, &pb.DeleteBusinessRequest{Producer: l.producer, Ids: ids})
	}
	if err == nil && r.publisher != nil {
		err = r.publisher.publish(messages)
	}
	if err == nil && r.store != nil {
		err = r.store.done(ctx, messages)
	}
	return err
}

// each returns an error for each of n messages.
func each(n int, err error) []error {
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// all returns the first error.
func all(errs []error, err error) error {
	for i := 0; err == nil && i < len(errs); i++ {
		err = errs[i]
	}
	return err
}
