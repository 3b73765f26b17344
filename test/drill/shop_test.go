package drill

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

const (
	exchange = "shop"
	queue    = "paid"
	key      = "order.paid"
	// plainExchange is where the rows of the outbox in plain SQL go.
	plainExchange = "plain"
)

// shop is a producer: it keeps its markers, as a database would, while its process is away.
type shop struct {
	pb.UnimplementedProducerServiceServer
	name string
	// addr is where it serves.
	addr string

	mu        sync.Mutex
	server    *grpc.Server
	committed map[string]bool
	// forgets is the share of ids that are not found: one in so many; 0 is none.
	forgets int
	// fails is the share of calls of Confirm that fail, likewise, and calls counts them.
	fails, calls int
	// hanging is closed when Confirm answers again; nil: it answers.
	hanging chan struct{}
}

// serve starts the process at an address.
func (s *shop) serve(addr string) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.addr, s.server = addr, grpc.NewServer()
	pb.RegisterProducerServiceServer(s.server, s)
	go func(server *grpc.Server) { _ = server.Serve(listener) }(s.server) // ends with stop
	return nil
}

func (s *shop) setForgets(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forgets = n
}

func (s *shop) setFails(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = n
}

// stop ends the process.
func (s *shop) stop() {
	s.mu.Lock()
	server := s.server
	s.mu.Unlock()
	if server != nil {
		server.Stop()
	}
}

// Confirm implements pb.ProducerServiceServer.
func (s *shop) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	s.mu.Lock()
	hanging := s.hanging
	s.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &pb.ConfirmResponse{}
	if s.calls++; s.fails > 0 && s.calls%s.fails == 0 {
		return nil, status.Error(codes.Internal, "the database cannot be read")
	}
	for _, id := range r.GetIds() {
		verdict := pb.Verdict_VERDICT_UNKNOWN
		if s.committed[id] && (s.forgets == 0 || id[len(id)-1]%byte(s.forgets) != 0) {
			verdict = pb.Verdict_VERDICT_COMMITTED
		}
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: verdict})
	}
	return answer, nil
}

// DeleteBusiness implements pb.ProducerServiceServer.
func (s *shop) DeleteBusiness(context.Context, *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	return &pb.DeleteBusinessResponse{}, nil // the drill compares the committed ids with the deliveries
}

// order sends a half message, commits, and submits. A refused half message commits nothing.
func (s *shop) order(ctx context.Context, client pb.MessageHandlerServiceClient) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	s.mu.Lock()
	addr, id := s.addr, fmt.Sprintf("%s-%d", s.name, time.Now().UnixNano())
	s.mu.Unlock()
	_, err := client.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
		Producer: s.name, CallbackTarget: addr,
		Message: &pb.Message{Id: id, Exchange: exchange, RoutingKey: key, Body: []byte("{}")},
	})
	if err != nil {
		return
	}
	s.mu.Lock()
	s.committed[id] = true
	s.mu.Unlock()
	_, _ = client.Submit(ctx, &pb.SubmitRequest{Producer: s.name, Id: id}) // a lost Submit is asked about
}

// hang has Confirm wait for a lock, as of a database, until free.
func (s *shop) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hanging = make(chan struct{})
}

func (s *shop) free() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hanging != nil {
		close(s.hanging)
		s.hanging = nil
	}
}

// has is the number of the committed messages.
func (s *shop) has() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.committed)
}

// deliveries counts how often each message came, by id. A later copy that is marked as a copy does not count.
type deliveries struct {
	mu  sync.Mutex
	all map[string]int
}

// consume reads the queue until ctx ends, again and again: the queue may be away, and its broker too.
func (d *deliveries) consume(ctx context.Context, url string) {
	for ctx.Err() == nil {
		_ = d.consumeOnce(url) // the next connection succeeds, or the drill misses messages
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (d *deliveries) consumeOnce(url string) error {
	conn, err := amqp.Dial(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		return err
	}
	copies, err := ch.Consume(queue, "", true, false, false, false, nil)
	if err != nil {
		return err
	}
	for c := range copies {
		attempt, flagged := c.Headers["msghandler-attempt"].(int64)
		d.mu.Lock()
		if !flagged || attempt <= 1 || d.all[c.MessageId] == 0 {
			d.all[c.MessageId]++
		}
		d.mu.Unlock()
	}
	return nil
}

// missing counts the committed messages of a shop without a delivery, and those with more than one.
func (d *deliveries) missing(s *shop) (missing, twice int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for id := range s.committed {
		switch n := d.all[id]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	return missing, twice
}
