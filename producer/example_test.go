package producer_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A service tells others that an order is paid, if and only if the payment commits: the marker is the first row of its
// transaction.
func Example() {
	ctx := context.Background()
	db, err := sql.Open("pgx", "postgres://orders@127.0.0.1/orders") // import the driver of your database
	if err != nil {
		log.Fatal(err)
	}
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.PostgreSQL, Producer: "orders"})
	if err != nil {
		log.Fatal(err)
	}
	if err := markers.Migrate(ctx); err != nil {
		log.Fatal(err)
	}
	p, err := producer.New(producer.Config{Name: "orders", Coordinator: "127.0.0.1:9090", Markers: markers})
	if err != nil {
		log.Fatal(err)
	}

	// For each order:
	err = markers.Send(ctx, p, producer.Message{
		ID: "1001", Exchange: "orders", RoutingKey: "order.paid", Body: []byte(`{"order":"1001"}`),
	}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE orders SET paid = true WHERE id = $1`, "1001")
		return err
	})
	switch {
	case err == nil, errors.Is(err, producer.ErrAlreadyCommitted):
		fmt.Println("paid, now or by an earlier call, and the message is on its way")
	case errors.Is(err, producer.ErrUnavailable), errors.Is(err, producer.ErrSendAgain),
		errors.Is(err, producer.ErrOutcomeUnknown):
		fmt.Println("call again with the same id")
	default:
		fmt.Println("not paid:", err)
	}
}

// A service without an SQL database keeps its markers in Redis or, as here, in memory. A process that dies between
// commit and Submit leaves its message ABANDONED then, for an operator to look at. The coordinator of this example
// lives in the same process.
func Example_withoutSQL() {
	coordinator, stop := startCoordinator("127.0.0.1:0", "127.0.0.1:0")
	defer stop()

	// In a service's main: a producer, registered on the service's own gRPC server.
	p, err := producer.New(producer.Config{
		Name:           "orders",
		Coordinator:    coordinator.addr,
		CallbackTarget: coordinator.callback.Addr().String(),
		Markers:        memory.New(),
		Coordinators:   producer.Coordinators{Anyone: true}, // the example's own process; name yours by token or certificate
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	p.Register(server)
	go func() { _ = server.Serve(coordinator.callback) }()
	defer server.Stop()

	// For each order: the transaction, between half message and submit.
	ctx := context.Background()
	for _, order := range []string{"1001", "1002"} {
		err := p.Send(ctx, producer.Message{
			ID: order, Exchange: "orders", RoutingKey: "order.paid", Body: []byte(`{"order":"` + order + `"}`),
		}, func(context.Context) error {
			if order == "1002" {
				return errors.New("card declined")
			}
			return nil // committed
		})
		fmt.Println(order, err)
	}

	// At the end: first the submits still under way, then the server.
	if err := p.Close(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("delivered:", coordinator.delivered)
	// Output:
	// 1001 <nil>
	// 1002 business of 1002: card declined
	// delivered: [1001]
}

// An error of Commit leaves open whether the transaction committed.
func ExampleUnsure() {
	commit := func() error { return errors.New("connection reset") }
	err := producer.Unsure(commit())
	fmt.Println(errors.Is(err, producer.ErrOutcomeUnknown))
	fmt.Println(producer.Unsure(nil))
	// Output:
	// true
	// <nil>
}

type exampleCoordinator struct {
	*coordinator
	addr     string
	callback net.Listener
}

func startCoordinator(addr, callback string) (*exampleCoordinator, func()) {
	door, err := net.Listen("tcp", addr)
	if err != nil {
		log.Fatal(err)
	}
	back, err := net.Listen("tcp", callback)
	if err != nil {
		log.Fatal(err)
	}
	conn, err := grpc.NewClient(back.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	c := newCoordinator()
	c.confirms = true
	c.producer = pb.NewProducerServiceClient(conn)
	s := grpc.NewServer()
	pb.RegisterMessageHandlerServiceServer(s, c)
	go func() { _ = s.Serve(door) }()
	return &exampleCoordinator{coordinator: c, addr: door.Addr().String(), callback: back}, func() {
		s.Stop()
		_ = conn.Close()
	}
}
