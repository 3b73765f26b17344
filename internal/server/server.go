// Package server serves the coordinator's API by gRPC and HTTP: it checks each request, calls the domain and translates
// errors once.
//
// guard bounds what requests may hold before they reach a handler; httpapi serves HTTP beside gRPC; submit gathers
// concurrent calls into the store's batches. No call is answered OK before the store has its messages.
package server

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/audit"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/guard"
	"github.com/msghandler/msghandler/internal/server/httpapi"
	"github.com/msghandler/msghandler/internal/server/policy"
	"github.com/msghandler/msghandler/internal/server/submit"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Targets says where producers are called back.
type Targets interface {
	// Resolve checks the target that a request names, or finds the target configured for the producer where named is
	// empty. It fails with halfmsg.ErrNoTarget, ErrBadTarget or ErrForbidden, in words that are fit for the caller.
	Resolve(producer, named string) (string, error)
}

// openAPI describes the services for clients of HTTP.
//
//go:embed openapi.swagger.yaml
var openAPI []byte

// Config says what a Server serves. Zero values mean the defaults.
type Config struct {
	// Intake is where producers' messages go. Required.
	Intake halfmsg.Intake
	// Inspector is what operators look into. Required.
	Inspector halfmsg.Inspector
	// History lists finished messages and replays them. Nil: there is none.
	History halfmsg.Historian
	// DeadLetters are those of consumers. Nil: no queue is configured.
	DeadLetters DeadLetters
	// Targets checks callback targets. Required.
	Targets Targets
	// Pipeline takes the messages that a Submit has claimed, to confirm them at once, and the messages that a trusted
	// Submit has made SENDABLE (halfmsg.Submitted.Claim). It wakes a loop when an operator has made messages due.
	// Required.
	Pipeline *delivery.Pipeline
	// Attendance keeps the streams of producers that attend. Nil: no producer can attend.
	Attendance *attend.Hub
	// Trusted says whether a producer's Submit is its verdict. Default: no producer's.
	Trusted func(producer string) bool
	// Policies say what producers may name and hold. Nil: everything.
	Policies *policy.Book
	// Refused is called for each call of a producer, and each message of a batch, that is refused for good. producer is
	// empty where the name is invalid. reason is CALLBACK_FORBIDDEN, CALLER_FORBIDDEN,
	// POLICY_FORBIDDEN or INVALID_ARGUMENT. Refused must not block. May be nil.
	Refused func(producer, reason, cause string)
	// Brokers are the names of the brokers that messages may name.
	Brokers []string
	// BrokerStats tells how the brokers do, for AdminService. May be nil.
	BrokerStats func() []*adminv1.BrokerStats
	// Coordinators tells of the coordinators on the same Redis, for AdminService. May be nil.
	Coordinators func() []*adminv1.Coordinator
	// AddSums adds the sums of all coordinators to an answer of GetStats. May be nil.
	AddSums func(to *adminv1.GetStatsResponse)
	// Configuration is the answer of GetConfiguration. May be nil.
	Configuration func() *adminv1.GetConfigurationResponse
	// Findings lists the problems to act on, the worst first, for AdminService. May be nil.
	Findings func(ctx context.Context) []*adminv1.Finding
	// Problems lists the problems that lasted at or after since and began before until, the latest first. May be nil.
	Problems func(ctx context.Context, since, until time.Time) ([]*adminv1.Finding, error)

	// ConfirmAfter is for requests that do not say how long to wait before the first Confirm.
	ConfirmAfter time.Duration
	// ConfirmTimeout is how long a producer may take to answer an operator's question.
	ConfirmTimeout time.Duration
	// ConfirmLease is for how long a Submit claims messages.
	ConfirmLease time.Duration
	// SendLease is for how long a trusted Submit claims messages.
	SendLease time.Duration
	// Limits bounds the requests in flight.
	Limits Limits
	// ConnectionAge is when a client is asked to close a connection; calls in flight then have a day. Jitter changes the
	// age by a tenth.
	ConnectionAge time.Duration
	// ConnectionIdle is when a client is asked to close a connection without calls.
	ConnectionIdle time.Duration
	// PingAfter is when a silent client is asked for a sign of life. 0: after PingAfter.
	PingAfter time.Duration
	// Reflection serves gRPC reflection.
	Reflection bool
	// Credentials secure the connections of clients. Default: none, nothing is encrypted.
	Credentials credentials.TransportCredentials
	// HideBodies hides bodies and headers of messages from every operator.
	HideBodies bool
	// Access makes the identities of callers. Required.
	Access *access.Authenticator
	// Withdrawn says why the client certificate of an open connection does not hold any more; nil: it holds. Default:
	// every certificate holds.
	Withdrawn func(credentials.AuthInfo) error
	// recheck is how often the callers of open connections and streams are checked again. Tests choose less than
	// recheckInterval.
	recheck time.Duration
	// Audit keeps records of changes and of calls that are refused because of their caller. May be nil.
	Audit AuditTrail
	// Interceptors see every unary call, before its request is checked; for metrics and traces. A panic in one
	// is caught.
	Interceptors []grpc.UnaryServerInterceptor
	// RefusedUnread is called for each request that is refused before it is decoded, with one of guard.Reasons. It must
	// not block. May be nil.
	RefusedUnread func(reason string)
	// RefusedHTTP is called for each HTTP request that is refused before it is a call, with the reason of its answer,
	// such as PATH_UNKNOWN. It must not block. May be nil.
	RefusedHTTP func(reason string)
	// Logger gets one line for each event that a person may need. Default slog.Default().
	Logger *slog.Logger
}

// Limits bounds the requests of a Server. Past the limits callers get RESOURCE_EXHAUSTED.
type Limits struct {
	// Body is how many bytes a message's body may have.
	Body int
	// Waiting is how many messages may wait for the store, for each of SendHalfMessage, Submit, the Submit of
	// trusted producers, and Rollback.
	Waiting int
	// Streams is how many streams that need no identity may be open, such as watches of the health: two for each
	// connection that there may be. A stream takes 14 KiB. Addresses and connections share Streams as they share
	// Bytes.
	Streams int
	// Bytes is how many bytes the requests in flight may hold in all, from the announcement of their size until their
	// answer. Requests over 64 KiB may take three quarters of Bytes. One address may hold seven times what stays free, and
	// one connection as much as stays free.
	Bytes int
	// calls is how many calls may be in flight. Half of the calls may wait for a message's outcome, a quarter for messages
	// of one producer. As many again may have begun without a complete request; addresses and connections share
	// these as they share Bytes. Tests choose fewer than maxCalls.
	calls int
}

// ofRequests are the limits that hold before a request is decoded. The body of a message may be as large as its limit
// says, and the rest of a message takes 20 KiB at most.
func (l Limits) ofRequests() guard.Limits {
	return guard.Limits{
		Calls: l.calls, Streams: l.Streams, Bytes: l.Bytes, Request: max(minMaxRequest, l.Body+(1<<20)),
		Items: maxItems, Headers: maxHeaders,
	}
}

// PingAfter is the default of Config.PingAfter.
const PingAfter = guard.PingAfter

const (
	// recheckInterval is how often the callers of open connections and streams are checked again: a withdrawn caller is
	// cut off well within a minute.
	recheckInterval = 15 * time.Second
	// storeTimeout bounds each call to the store.
	storeTimeout = 10 * time.Second
	// maxCalls is how many calls may be in flight.
	maxCalls = 20_000
	// maxItems is how many messages, ids or names one call may hold; the contract says so.
	maxItems = 1000
	// minMaxRequest holds a batch of 1,000 messages of 16 KiB. A batch of larger messages must have fewer.
	minMaxRequest = 16 << 20
)

// Server serves MessageHandlerService, AdminService and grpc.health.v1. It implements halfmsg.Watcher, which ends the
// waits of WAIT_SENDABLE and WAIT_DONE. It is safe for concurrent use.
type Server struct {
	config Config
	// grpc serves native gRPC. behindHTTP serves gRPC for http: a graceful stop of gRPC cuts the calls of an HTTP server.
	grpc       *grpc.Server
	behindHTTP *grpc.Server
	http       *httpapi.API
	health     *health.Server
	guard      *guard.Guard
	submits    *submit.Batcher
	tails      *tails
	inFlight   *inFlight
	faults     *faults
	// background has the goroutines of Serve and Stop.
	background lifecycle.Group

	// stopping ends the waits and streams, so that a stop need not wait for them.
	stopping context.Context
	stop     context.CancelFunc
	once     sync.Once
}

var _ halfmsg.Watcher = (*Server)(nil)

// New returns a Server that is not serving yet: its health is NOT_SERVING until SetServing(true).
func New(config Config) (*Server, error) {
	if config.Intake == nil || config.Inspector == nil || config.Targets == nil || config.Pipeline == nil ||
		config.Access == nil {
		return nil, errors.New("server: Intake, Inspector, Targets, Pipeline and Access are required")
	}
	if !config.complete() {
		return nil, errors.New("server: ConfirmAfter, the leases, the limits and the ages of connections are required")
	}
	s := &Server{config: config.withHooks(), health: health.NewServer(), tails: &tails{}}
	s.inFlight = &inFlight{limit: int64(s.config.Limits.calls)}
	s.faults = newFaults(s.config.Logger)
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.guard = guard.New(s.guardConfig())
	s.submits = submit.New(s.submitConfig())
	s.grpc = s.newGRPC(s.guard.Options())
	s.behindHTTP = s.newGRPC(s.guard.HTTPOptions())
	s.http = httpapi.New(s.httpConfig())
	s.SetServing(false)
	return s, nil
}

// Operators makes the unary calls of AdminService for callers in this process. The context has their identity, which
// must have the role that a method needs, and the context's peer says from where they call.
func (s *Server) Operators() grpc.ClientConnInterface {
	return localConn{&operators{server: s}}
}

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
	if c.RefusedHTTP == nil {
		c.RefusedHTTP = func(string) {}
	}
	if c.Refused == nil {
		c.Refused = func(string, string, string) {}
	}
	if c.BrokerStats == nil {
		c.BrokerStats = func() []*adminv1.BrokerStats { return nil }
	}
	if c.Coordinators == nil {
		c.Coordinators = func() []*adminv1.Coordinator { return nil }
	}
	if c.AddSums == nil {
		c.AddSums = func(*adminv1.GetStatsResponse) {}
	}
	if c.Configuration == nil {
		c.Configuration = func() *adminv1.GetConfigurationResponse { return &adminv1.GetConfigurationResponse{} }
	}
	if c.Problems == nil {
		c.Problems = func(context.Context, time.Time, time.Time) ([]*adminv1.Finding, error) { return nil, nil }
	}
	if c.Findings == nil {
		c.Findings = func(context.Context) []*adminv1.Finding { return nil }
	}
	c.recheck = cmp.Or(c.recheck, recheckInterval)
	if c.Withdrawn == nil {
		c.Withdrawn = func(credentials.AuthInfo) error { return nil }
	}
	if c.Audit == nil {
		c.Audit = noTrail{audit.Nowhere}
	}
	c.Limits.calls = cmp.Or(c.Limits.calls, maxCalls)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

func (s *Server) guardConfig() guard.Config {
	return guard.Config{
		Credentials: s.config.Credentials, Limits: s.config.Limits.ofRequests(),
		ConnectionAge: s.config.ConnectionAge, ConnectionIdle: s.config.ConnectionIdle,
		PingAfter: s.config.PingAfter,
		Open:      func(method string) bool { return needs[method].open }, Identify: s.identifyUnread,
		Translate: translateUnread, Refused: s.config.RefusedUnread, Stopping: s.stopping, Logger: s.config.Logger,
		Duplex: map[string]int64{msghandlerv1.MessageHandlerService_Attend_FullMethodName: maxAnswer},
	}
}

func (s *Server) submitConfig() submit.Config {
	return submit.Config{
		Intake: s.config.Intake, Inspector: s.config.Inspector, Pipeline: s.config.Pipeline, Trusted: s.config.Trusted,
		Observer: s.tails, ConfirmLease: s.config.ConfirmLease, SendLease: s.config.SendLease,
		StoreTimeout: storeTimeout, Waiting: s.config.Limits.Waiting, Calls: s.config.Limits.calls,
		Stopping: s.stopping,
	}
}

// services are the services for producers and operators.
func (s *Server) services() []httpapi.Service {
	return []httpapi.Service{
		{Desc: s.guard.Service(&msghandlerv1.MessageHandlerService_ServiceDesc), Implementation: &producers{server: s}},
		{Desc: s.guard.Service(&adminv1.AdminService_ServiceDesc), Implementation: &operators{server: s}},
	}
}

// newGRPC builds a gRPC server with all services.
func (s *Server) newGRPC(options []grpc.ServerOption) *grpc.Server {
	g := grpc.NewServer(append(options,
		grpc.UnaryInterceptor(s.interceptUnary()), grpc.ChainStreamInterceptor(s.admitStream, s.guard.InterceptStream))...)
	for _, service := range s.services() {
		g.RegisterService(service.Desc, service.Implementation)
	}
	g.RegisterService(s.guard.Service(&healthv1.Health_ServiceDesc), s.health)
	if s.config.Reflection {
		reflection.Register(g)
	}
	return g
}

func (s *Server) httpConfig() httpapi.Config {
	return httpapi.Config{
		Guard: s.guard, Services: s.services(), Unary: s.interceptUnary(), Stream: s.interceptStream,
		Panicked: func(method string, failure *lifecycle.PanicError) error {
			return s.fail(context.Background(), method, failure, halfmsg.None)
		},
		Refused: s.config.RefusedHTTP, GRPC: s.behindHTTP, OpenAPI: openAPI, Idle: s.config.ConnectionIdle,
		Logger: s.config.Logger,
	}
}

// Queues counts what waits: calls in flight, and the messages that wait for the store.
func (s *Server) Queues() map[string]func() int {
	queues := s.submits.Queues()
	queues["calls"] = func() int { return int(s.inFlight.calls.Load()) }
	return queues
}

// Moved implements halfmsg.Watcher.
func (s *Server) Moved(moves []halfmsg.Moved) {
	s.submits.Moved(moves)
	s.tails.Moved(moves)
}

// Serve accepts calls until Stop, and then returns nil. It closes the listener.
func (s *Server) Serve(listener net.Listener) error {
	ctx, end := context.WithCancel(context.Background())
	var slow sync.WaitGroup
	slow.Go(func() { s.guard.CloseSlow(ctx) })
	slow.Go(func() { s.guard.CloseWithdrawn(ctx, s.config.recheck, s.config.Withdrawn) })
	defer slow.Wait()
	defer end()
	var byHTTP error
	var http sync.WaitGroup
	http.Go(func() { byHTTP = s.http.Serve() })
	err := s.grpc.Serve(s.guard.Listen(listener))
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		_ = s.guard.HTTP().Close() // it never fails
	} else {
		err = nil
	}
	http.Wait()
	return errors.Join(err, byHTTP)
}

// SetServing sets what grpc.health.v1 says of the server as a whole and of each service.
func (s *Server) SetServing(serving bool) {
	status := healthv1.HealthCheckResponse_NOT_SERVING
	if serving {
		status = healthv1.HealthCheckResponse_SERVING
	}
	for _, service := range []string{
		"", msghandlerv1.MessageHandlerService_ServiceDesc.ServiceName, adminv1.AdminService_ServiceDesc.ServiceName,
	} {
		s.health.SetServingStatus(service, status)
	}
}
