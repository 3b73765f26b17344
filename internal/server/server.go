// Package server serves the coordinator's gRPC API: it checks each request, calls the domain and translates errors
// once.
//
// Concurrent calls are gathered into the store's batches. Nothing is said to be OK before the store has it.
package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/experimental"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Targets says where producers are called back.
type Targets interface {
	// Resolve checks the target that a request names, or finds the one configured for the producer where it names none.
	// It fails with halfmsg.ErrNoTarget, ErrBadTarget or ErrForbidden, in words that are fit for the caller.
	Resolve(producer, named string) (string, error)
}

// Config says what a Server serves. Zero values mean the defaults.
type Config struct {
	// Intake is where producers' messages go. Required.
	Intake halfmsg.Intake
	// Inspector is what operators look into. Required.
	Inspector halfmsg.Inspector
	// Targets checks callback targets. Required.
	Targets Targets
	// Pipeline takes the messages that a Submit has claimed, to confirm them at once, and those that a trusted Submit has
	// made SENDABLE (halfmsg.Submitted.Claim). It has a loop pass when an operator has made messages due. Required.
	Pipeline *delivery.Pipeline
	// Trusted says whether a producer's Submit is the verdict, which is stored with it. Default: nobody's is.
	Trusted func(producer string) bool
	// Refused is told of each call of a producer, and each message of a batch, that is refused for good: of whom,
	// empty where the name is none, for what reason (CALLBACK_FORBIDDEN, CALLER_FORBIDDEN or INVALID_ARGUMENT), and in
	// what words. It must not block. May be nil.
	Refused func(producer, reason, cause string)
	// Findings tells what somebody should act on, the worst first, for AdminService. May be nil.
	Findings func(ctx context.Context) []*msghandlerv1.Finding

	// ConfirmAfter is for requests that do not say how long to wait before the first Confirm.
	ConfirmAfter time.Duration
	// ConfirmLease is for how long a Submit claims messages.
	ConfirmLease time.Duration
	// SendLease is for how long a trusted Submit claims messages.
	SendLease time.Duration
	// Limits bounds what is taken in.
	Limits Limits
	// ConnectionAge is when a connection is told to end; calls that are under way then have a day. Jitter
	// changes the age by a tenth.
	ConnectionAge time.Duration
	// ConnectionIdle is when a connection without a call is told to end.
	ConnectionIdle time.Duration
	// Reflection serves gRPC reflection.
	Reflection bool
	// Credentials are those that clients are met with. Default: none, nothing is encrypted.
	Credentials credentials.TransportCredentials
	// Permissions say who may call what.
	Permissions Permissions
	// Interceptors see every unary call, before its request is checked; for metrics and traces. A panic in one
	// is caught.
	Interceptors []grpc.UnaryServerInterceptor
	// RefusedUnread is told of each request that is refused before it is decoded, with one of RefusedReasons. It must not
	// block. May be nil.
	RefusedUnread func(reason string)
	// Logger gets one line for each event that a person may need. Default slog.Default().
	Logger *slog.Logger
}

// Limits bounds what a Server takes in. Past them callers get RESOURCE_EXHAUSTED.
type Limits struct {
	// Body is how many bytes a message's body may have.
	Body int
	// Waiting is how many messages may wait for the store, for each of SendHalfMessage, Submit, the Submit of
	// trusted producers, and Rollback.
	Waiting int
	// Bytes is how many bytes the requests under way may hold in all, from when they announce their size until
	// they are answered. Requests over 64 KiB may take three quarters of it. One address may hold seven times
	// what stays free, and one connection as much as stays free.
	Bytes int
	// calls is how many calls may be under way at once. At most half of them may wait for a message's fate, and a quarter
	// may be the waiting calls of one producer. As many again may have begun without their whole request; addresses and
	// connections share these as they share Bytes. Tests choose fewer than maxCalls.
	calls int
}

// maxRequest is how many bytes a request may have: the body may be as large as its limit says, and the rest of a
// message takes 20 KiB at most.
func (l Limits) maxRequest() int { return max(minMaxRequest, l.Body+(1<<20)) }

// Why a request is refused before it is decoded: it is compressed, requests under way hold as many bytes as they may,
// or too many requests are arriving.
const (
	RefusedCompressed = "compressed"
	RefusedBytes      = "bytes"
	RefusedCalls      = "calls"
)

// RefusedReasons lists why requests are refused before they are decoded.
func RefusedReasons() []string { return []string{RefusedCompressed, RefusedBytes, RefusedCalls} }

// receiveBuffers hold what is received. gRPC's own take up to four times the size of what is in them.
var receiveBuffers = func() mem.BufferPool {
	pool, err := mem.NewBinaryTieredBufferPool(8, 10, 11, 12, 13, 14, 15, 20)
	if err != nil {
		panic(err) // the sizes are constants
	}
	return pool
}()

const (
	// storeTimeout bounds each call to the store.
	storeTimeout = 10 * time.Second
	// maxCalls is how many calls may be under way at once.
	maxCalls = 20_000
	// maxItems is how many messages, ids or names one call may hold; the contract says so.
	maxItems = 1000
	// minMaxRequest holds a batch of 1,000 messages of 16 KiB. A batch of larger ones must have fewer.
	minMaxRequest = 16 << 20
	// connectionGrace is how long calls may go on by a connection that was told to end: a tail is looked at for a day at
	// most.
	connectionGrace = 24 * time.Hour
	// maxStreams is how many calls one connection may have under way.
	maxStreams = 2000
	// gatherMax and gatherParallel: a batch is what comes in during one round trip to the store. Two under way keep the
	// store busy while the next ones gather; more would only make them smaller.
	gatherMax      = 500
	gatherParallel = 2
	// maxBatches is how many calls that bring a batch of their own may be in the store at once.
	maxBatches = 16
)

// Server serves MessageHandlerService, AdminService and grpc.health.v1. It implements halfmsg.Watcher, which ends the
// waits of WAIT_SENDABLE and WAIT_DONE. It is safe for concurrent use.
type Server struct {
	config  Config
	grpc    *grpc.Server
	health  *health.Server
	watch   *watch
	tails   tails
	room    *room
	clients *connections
	faults  *faults

	creates   *batch.Group[halfmsg.Message, halfmsg.Result]
	submits   *batch.Group[halfmsg.Name, halfmsg.Submitted]
	verdicts  *batch.Group[halfmsg.Name, halfmsg.Submitted] // Submits that are trusted
	rollbacks *batch.Group[halfmsg.Name, halfmsg.Result]
	// background has the goroutines of Stop.
	background lifecycle.Group

	// polls and batches hold the places for looks at single messages and for calls that bring a batch of their own.
	polls   chan struct{}
	batches chan struct{}

	// stopping ends the calls that only wait, so that a stop need not wait for them.
	stopping context.Context
	stop     context.CancelFunc
	once     sync.Once
}

var _ halfmsg.Watcher = (*Server)(nil)

// New returns a Server that is not serving yet: its health is NOT_SERVING until SetServing(true).
func New(config Config) (*Server, error) {
	if config.Intake == nil || config.Inspector == nil || config.Targets == nil || config.Pipeline == nil {
		return nil, errors.New("server: Intake, Inspector, Targets and Pipeline are required")
	}
	if !config.complete() {
		return nil, errors.New("server: ConfirmAfter, the leases, the limits and the ages of connections are required")
	}
	s := &Server{config: config.withHooks(), health: health.NewServer()}
	s.watch = newWatch(s.config.Limits.calls)
	s.room = &room{calls: int64(s.config.Limits.calls)}
	s.clients = newConnections(s.config.Credentials, s.config.Limits)
	s.faults = newFaults(s.config.Logger)
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.polls, s.batches = make(chan struct{}, maxPolls), make(chan struct{}, maxBatches)
	s.gather()
	s.grpc = grpc.NewServer(s.options()...)
	s.grpc.RegisterService(s.readable(&msghandlerv1.MessageHandlerService_ServiceDesc), &producers{Server: s})
	s.grpc.RegisterService(s.readable(&msghandlerv1.AdminService_ServiceDesc), &operators{Server: s})
	s.grpc.RegisterService(s.readable(&healthv1.Health_ServiceDesc), s.health)
	if s.config.Reflection {
		reflection.Register(s.grpc)
	}
	s.SetServing(false)
	return s, nil
}

// Operators is AdminService for callers in this process. Who calls is the context's peer.
func (s *Server) Operators() msghandlerv1.AdminServiceServer { return &operators{Server: s} }

// complete says whether every value is set for which internal/config has a default.
func (c *Config) complete() bool {
	return min(
		c.ConfirmAfter, c.ConfirmLease, c.SendLease, c.ConnectionAge, c.ConnectionIdle,
		time.Duration(c.Limits.Body), time.Duration(c.Limits.Waiting), time.Duration(c.Limits.Bytes),
	) > 0
}

func (c Config) withHooks() Config {
	if c.Trusted == nil {
		c.Trusted = func(string) bool { return false }
	}
	if c.RefusedUnread == nil {
		c.RefusedUnread = func(string) {}
	}
	if c.Refused == nil {
		c.Refused = func(string, string, string) {}
	}
	if c.Findings == nil {
		c.Findings = func(context.Context) []*msghandlerv1.Finding { return nil }
	}
	c.Limits.calls = cmp.Or(c.Limits.calls, maxCalls)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// gather sets up the groups in which concurrent calls share the store's batches.
func (s *Server) gather() {
	config := batch.Config{
		Max: gatherMax, Parallel: gatherParallel, Waiting: s.config.Limits.Waiting, Timeout: storeTimeout,
		Counting: s.stopping, // as admit does, until the server stops and takes no more in
	}
	s.creates = batch.New(config, s.create)
	s.submits = batch.New(config, s.submit)
	s.verdicts = batch.New(config, s.submitTrusted)
	s.rollbacks = batch.New(config, s.rollback)
}

func (s *Server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.Creds(s.clients),
		grpc.InTapHandle(s.tap),
		// The tap must know which frame has been read last, so connections have the buffer, and not gRPC.
		grpc.ReadBufferSize(0),
		experimental.BufferPool(receiveBuffers),
		grpc.MaxRecvMsgSize(s.config.Limits.maxRequest()),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		// A client that is gone without a word is noticed after 40 s, so its waits do not stay for ever.
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionIdle: s.config.ConnectionIdle,
			MaxConnectionAge: s.config.ConnectionAge, MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.ChainUnaryInterceptor(s.interceptors()...),
		grpc.ChainStreamInterceptor(s.recoverStream, s.permitStream, s.endWithStop),
	}
}

func (s *Server) interceptors() []grpc.UnaryServerInterceptor {
	all := append([]grpc.UnaryServerInterceptor{s.recoverUnary}, s.config.Interceptors...)
	return append(all, s.permit, s.admit)
}

// Queues tells what waits here: calls that are under way, and the messages of them that wait for the store.
func (s *Server) Queues() map[string]func() int {
	return map[string]func() int{
		"calls":    func() int { return int(s.room.usedCalls.Load()) },
		"create":   s.creates.Waiting,
		"submit":   func() int { return s.submits.Waiting() + s.verdicts.Waiting() },
		"rollback": s.rollbacks.Waiting,
	}
}

// Serve accepts calls until Stop, and then returns nil. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	ctx, end := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { s.clients.watch(ctx, s.config.Logger) })
	defer watching.Wait()
	defer end()
	if err := s.grpc.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// SetServing sets what grpc.health.v1 says of the server as a whole and of each service.
func (s *Server) SetServing(serving bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{
		"", msghandlerv1.MessageHandlerService_ServiceDesc.ServiceName, msghandlerv1.AdminService_ServiceDesc.ServiceName,
	} {
		s.health.SetServingStatus(service, status)
	}
}
