package simulation

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/faults"
)

// directName is a producer without SDK: each call goes to another coordinator, or comes twice,
// too early or too late, and a marker is dropped when a coordinator says so.
const directName = "direct"

// direct is the producer directName. Its data are the ledger's, so a kill of its process changes nothing.
type direct struct {
	pb.UnimplementedProducerServiceServer
	world  *World
	host   *Host
	server *grpc.Server
	conns  []*grpc.ClientConn
	apis   []pb.MessageHandlerServiceClient

	mu sync.Mutex
	// silent are the messages about which each answer is UNKNOWN: their markers are dropped, or their Submit says all.
	silent map[string]bool
	// kept are the messages whose markers stay, and trusted the messages whose Submit was their verdict.
	kept, trusted map[string]bool
}

// startDirect starts the producer.
func (w *World) startDirect() error {
	p := &direct{
		world: w, host: w.Network.Host(directName, "10.2.0.20"),
		silent: map[string]bool{}, kept: map[string]bool{}, trusted: map[string]bool{},
	}
	for _, n := range w.Nodes {
		conn, err := grpc.NewClient("passthrough:///"+n.Address,
			grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
				return p.host.Dial(ctx, "tcp", addr)
			}))
		if err != nil {
			return err
		}
		p.conns, p.apis = append(p.conns, conn), append(p.apis, pb.NewMessageHandlerServiceClient(conn))
	}
	listener, err := p.host.Listen(context.Background(), "tcp", p.target())
	if err != nil {
		return err
	}
	p.server = grpc.NewServer(grpc.UnaryInterceptor(func(
		ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		return w.faulty.answering(ctx, directName, in, next)
	}))
	pb.RegisterProducerServiceServer(p.server, p)
	w.goInBackground(func() { _ = p.server.Serve(listener) })
	w.direct, w.producers = p, append(w.producers, p)
	return nil
}

func (p *direct) target() string { return p.host.at.String() + ":7000" }

func (*direct) name() string { return directName }

func (*direct) markers() []string { return nil }

func (*direct) restart() {}

func (p *direct) isTrusted(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.trusted[key]
}

func (p *direct) close() {
	for _, conn := range p.conns {
		_ = conn.Close()
	}
	p.server.Stop()
}

// Confirm implements pb.ProducerServiceServer.
func (p *direct) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	answer := &pb.ConfirmResponse{MarkerStore: directName}
	for _, id := range r.GetIds() {
		answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: p.verdict(id, r.GetFinal())})
	}
	return answer, nil
}

// verdict is the answer about a message. The last question plants a tombstone.
func (p *direct) verdict(id string, final bool) pb.Verdict {
	key := directName + "/" + id
	p.mu.Lock()
	silent := p.silent[id]
	p.mu.Unlock()
	fate := p.world.Ledger.Fate(key)
	if !silent && fate == faults.Undecided && final {
		fate = p.world.Ledger.Decide(key, faults.RolledBack)
	}
	verdict := map[faults.Fate]pb.Verdict{
		faults.Undecided: pb.Verdict_VERDICT_UNKNOWN, faults.Committed: pb.Verdict_VERDICT_COMMITTED,
		faults.RolledBack: pb.Verdict_VERDICT_ROLLED_BACK,
	}[fate]
	if silent || fate == faults.Undecided {
		return pb.Verdict_VERDICT_UNKNOWN
	}
	p.world.Ledger.Said(key, fate)
	return verdict
}

// DeleteBusiness implements pb.ProducerServiceServer. A Redis that forgets asks once more, so the markers stay there.
func (p *direct) DeleteBusiness(
	_ context.Context, r *pb.DeleteBusinessRequest,
) (*pb.DeleteBusinessResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range r.GetIds() {
		p.world.Ledger.Noted(directName+"/"+id, "producer", "is to drop the marker")
		if !p.world.faulty.excuse.forgets && !p.kept[id] {
			p.silent[id] = true
		}
	}
	return &pb.DeleteBusinessResponse{}, nil
}

// deed is the business of one message.
type deed struct {
	producer *direct
	id, key  string
	message  *pb.Message
	trusts   bool
}

// directWay is how a business of the producer goes.
type directWay struct {
	percent int
	// delayed messages wait after their verdict, and keeps says that their markers stay.
	delayed, keeps bool
	// losing ways are not gone where Redis forgets: the message may be another one by then.
	losing bool
	how    func(d *deed, ctx context.Context) error
}

// directWays are the ways of a message that is accepted.
var directWays = []directWay{
	{percent: 30, how: (*deed).commitAndSubmit},
	{percent: 10, how: (*deed).commitInSilence},
	{percent: 10, how: (*deed).rollBack},
	{percent: 15, how: (*deed).submitEarly},
	{percent: 15, delayed: true, losing: true, how: (*deed).rollBackTooLate},
	{percent: 10, losing: true, how: (*deed).sendOther},
	{percent: 10, delayed: true, keeps: true, losing: true, how: (*deed).loseRecord},
}

func (p *direct) way(key string) directWay {
	drawn := p.world.Choices.Intn(key+" way", 100)
	for _, way := range directWays {
		if drawn -= way.percent; drawn < 0 && (!way.losing || !p.world.faulty.excuse.forgets) {
			return way
		}
	}
	return directWays[0]
}

// act implements producing.
func (p *direct) act(id string) {
	w, key := p.world, directName+"/"+id
	way := p.way(key)
	d := &deed{
		producer: p, id: id, key: key, trusts: w.drawn.keys["submit.trust"] == "true",
		message: &pb.Message{
			Id: id, Exchange: exchange, RoutingKey: directName, Headers: map[string]string{"order": id},
			Body: bytes.Repeat([]byte(id+" "), 1+w.Choices.Intn(key+" size", 200)),
		},
	}
	if way.delayed {
		d.message.Delay = durationpb.New(w.pace.long(w.Choices, key+" delay", time.Minute, 3*time.Minute))
	}
	p.mu.Lock()
	if p.kept[id] = way.keeps; d.trusts && percent(w.Choices, key+" knows only its Submit", 50) {
		p.silent[id], way.how = true, (*deed).commitAndSubmit
	}
	p.mu.Unlock()
	w.Ledger.Sending(key, faults.NewContent(exchange, directName, d.message.GetHeaders(), d.message.GetBody()))
	err := d.sendHalf(w.life, d.message)
	if err == nil {
		w.Ledger.Accepted(key)
		err = way.how(d, w.life)
	}
	if w.Ledger.Decide(key, faults.RolledBack) == faults.RolledBack && err == nil {
		err = errRefused
	}
	w.Ledger.Noted(key, "producer", fmt.Sprint("ends: ", err))
}
