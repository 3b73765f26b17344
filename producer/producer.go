package producer

import (
	"context"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Producer sends half messages and answers the coordinator's questions about them. A Producer is safe for concurrent
// use.
type Producer struct {
	config      Config
	can         marker.Capabilities
	identity    identity
	admission   *admission
	conn        *grpc.ClientConn
	coordinator pb.MessageHandlerServiceClient

	inflight   *inflight
	background *background
	complaints *complaints
	// attendance is nil where Config.CallbackTarget says where the producer is called.
	attendance *attendance

	halves  *batch.Group[*pb.Message, answer]
	submits *batch.Group[string, answer]
	lookups *batch.Group[string, found]
	marks   *batch.Group[string, found]
}

// New returns a Producer, or an error for a configuration that cannot work. Connections are made in the background, so
// New succeeds while the coordinator is unreachable. Without Config.CallbackTarget the producer attends from now on: it
// opens streams to the coordinators, over which it is asked, and needs neither a server nor Register. Close ends them.
func New(config Config) (*Producer, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	admission, err := config.Coordinators.open(config.Logger)
	if err != nil {
		return nil, err
	}
	conn, err := dial(&config)
	if err != nil {
		return nil, err
	}
	p := &Producer{
		config:      config,
		can:         config.Markers.Capabilities(),
		admission:   admission,
		conn:        conn,
		coordinator: pb.NewMessageHandlerServiceClient(conn),
		inflight:    newInflight(config.Background),
		background:  newBackground(config.Background),
		complaints:  &complaints{producer: config.Name, log: config.Logger.With("producer", config.Name)},
	}
	waiting := groupConfig(config.Background)
	p.halves = batch.New(waiting, p.sendHalves)
	p.submits = batch.New(waiting, p.submitAll)
	p.lookups = batch.New(waiting, p.lookupMarkers)
	p.marks = batch.New(waiting, p.markAll)
	if config.CallbackTarget == "" {
		p.attendance = attend(p)
	}
	return p, nil
}

// Register serves this producer's Confirm and DeleteBusiness on a gRPC server, for a producer with a callback target,
// in its own configuration or the coordinator's. Call Register before the server's Serve and before Send; a server
// takes one producer. Every callback is refused if Config.Coordinators does not say who may call.
func (p *Producer) Register(server grpc.ServiceRegistrar) {
	pb.RegisterProducerServiceServer(server, p.serve())
}

// serve notes that the producer is called at a port.
func (p *Producer) serve() *callbacks {
	if p.attendance != nil {
		p.attendance.served.Store(true)
	}
	if p.config.Coordinators.empty() {
		p.config.Logger.Error(textClosed, "producer", p.config.Name)
	}
	return &callbacks{producer: p}
}

// Close refuses new calls, waits for running calls, for the submits in the background and for answers to open
// questions, and closes the connection. When the context ends first, Close cancels the rest and returns an error with
// their number. No message is lost then, because the coordinator asks. Keep serving the callbacks until Close has
// returned. Close may be called again.
func (p *Producer) Close(ctx context.Context) error {
	err := p.background.close(ctx)
	p.attendance.close(ctx)
	_ = p.conn.Close() // fails only for a closed connection
	return err
}
