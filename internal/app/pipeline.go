package app

import (
	"context"
	"fmt"
	"net"
	"path"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/app/callbacks"
	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/logtext"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loop"
	"github.com/msghandler/msghandler/internal/sendloop"
	"github.com/msghandler/msghandler/internal/server"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// The shares of the remaining grace for the parts that wait for clients and producers.
const (
	serverShare  = 0.4
	confirmShare = 0.5
	outboxShare  = 0.5
)

// stages are the parts of a coordinator that a message passes. Their hand-overs are the methods of pipeline.
type stages struct {
	pipeline    delivery.Pipeline
	sender      *sendloop.Sender
	confirmer   *confirmloop.Confirmer
	server      *server.Server
	sendLoop    *loop.Loop
	confirmLoop *loop.Loop
	deleteLoop  *loop.Loop
}

// openPipeline opens the send stage, the confirm stage and the server, in this order: each stage is there before it
// gets a message, and still there when the stage before it closes.
func (a *App) openPipeline(store *redisstore.Store, opened []openBroker) error {
	s := &stages{}
	a.openSender(s, store, opened)
	a.openConfirmer(s, store)
	if err := a.openLoops(s); err != nil {
		return err
	}
	if err := a.openServer(s, store, a.brokerStats(opened, s.sender.Waiting)); err != nil {
		return err
	}
	s.pipeline.Confirm, s.pipeline.Send = s.confirmer, s.sender
	s.pipeline.ConfirmLoop, s.pipeline.SendLoop, s.pipeline.DeleteLoop = s.confirmLoop, s.sendLoop, s.deleteLoop
	store.WakeForSuccessors(s.sendLoop.Wake)
	s.pipeline.Watchers = []halfmsg.Watcher{s.server, a}
	s.server.SetServing(true)
	health, err := a.newLoop("health", healthSchedule, func(ctx context.Context) (bool, error) {
		up := answers(ctx, store)
		s.server.SetServing(up)
		a.noteStore(up)
		return false, nil
	})
	if err != nil {
		return err
	}
	weigh, err := a.newLoop("policy", weighSchedule, func(ctx context.Context) (bool, error) {
		return false, a.reloader.policies.Weigh(func(producers []string) ([]int64, error) {
			return store.UnfinishedBytes(ctx, producers)
		})
	})
	if err != nil {
		return err
	}
	weigh.Start()
	s.sendLoop.Start()
	s.confirmLoop.Start()
	s.deleteLoop.Start()
	health.Start()
	limited := a.limited(grpcListener, a.doors.api, a.doors.share.API, a.doors.share.APIPerAddress)
	a.serve("grpc", func() error { return s.server.Serve(limited) })
	a.checks.set(checkAPI, func(context.Context) error { return nil })
	return nil
}

// healthSchedule is when the coordinator checks whether it can still serve. Producers that watch the health go to
// another coordinator then; otherwise each of their calls would wait for a silent Redis.
const healthSchedule = "@every 500ms"

// silenceTolerated is how long Redis may take to answer a PING: longer than a usual fork or disk sync.
const silenceTolerated = 2 * time.Second

func answers(ctx context.Context, store *redisstore.Store) bool {
	ctx, cancel := context.WithTimeout(ctx, silenceTolerated)
	defer cancel()
	return store.Ping(ctx) == nil
}

// newCallbacks builds the client that calls producers, without a connection yet.
func (a *App) newCallbacks() (*callback.Client, error) {
	if a.settings.Callbacks.PublicOnly() {
		a.logger.Warn("callbacks.networks is empty: producers at private addresses are not called, and their messages " +
			"wait; name the networks of your producers, such as 10.0.0.0/8")
	}
	if plain := a.settings.TokensInPlain(); len(plain) > 0 {
		a.logger.Warn("tokens are sent to producers without encryption: an attacker on the way can read them, and roll back "+
			"running transactions; set callbacks.tls, unless the network is private or encrypted", "keys", plain)
	}
	if a.settings.SecuresURLsOnly() {
		a.logger.Warn("callbacks.tls_ca or callbacks.tls_cert is set, and callbacks.tls is not: only targets of https:// " +
			"are called with TLS, and all others without encryption; set callbacks.tls, unless this is intended")
	}
	config, source, err := callbacks.Config(&a.settings, a.logger)
	if err != nil {
		return nil, SettingsError{err}
	}
	if source != nil {
		a.addCertificates(source, "callbacks.tls_cert", "callbacks.tls_ca")
	}
	var client *callback.Client
	config.Handshake = a.doors.certificates.Servers("producers", func(ctx context.Context, to string) (net.Conn, error) {
		return client.Dial(ctx, to)
	}).Handshake
	config.Dial = a.process.network.Dial
	config.Attending, config.Own, config.Split = a.attendance.Client, a.ownAddresses, a.noteSplit
	client, err = callback.New(config)
	if err != nil {
		return nil, SettingsError{fmt.Errorf("callbacks.allow, callbacks.moved and producers.NAME.target: %w", err)}
	}
	return client, nil
}

// destinations are the brokers by name, as messages reach them.
func (a *App) destinations(opened []openBroker) map[string]sendloop.Broker {
	all := map[string]sendloop.Broker{}
	for _, b := range opened {
		all[b.name] = sendloop.Broker{
			Publisher: a.traced(b.Client, brokers.System(b.url)), DeadLetterExchange: b.deadLetters,
		}
	}
	return all
}

func (a *App) openSender(s *stages, store *redisstore.Store, opened []openBroker) {
	settings := a.settings.Send
	c := sendloop.Config{
		Store:    store,
		Brokers:  a.destinations(opened),
		Pipeline: &s.pipeline,
		Backoff:  settings.Backoff,
		Batch:    settings.Batch,
		Parallel: sendParallel,
		Queue:    sendQueue,
		Lease:    settings.Lease,
		Margin:   settings.ConfirmTimeout + time.Second,
		Logger:   a.logger,
		Language: logtext.Language(a.settings.Log.Language),
		Metrics:  a.metrics,
	}
	c.DeleteAfterAck = a.settings.DeleteBusiness.When == config.AfterAck
	s.sender = sendloop.New(c)
	for _, b := range opened {
		a.metrics.Queue(queueOf("send", b.name), func() int { return s.sender.Waiting(b.name) })
	}
	a.closeWith(closer{name: "send stage", close: s.sender.Close})
}

func (a *App) openConfirmer(s *stages, store *redisstore.Store) {
	settings := a.settings.Confirm
	c := confirmloop.Config{
		Store:            store,
		Callbacks:        a.callbacks,
		Pipeline:         &s.pipeline,
		Backoff:          settings.Backoff,
		Attempts:         settings.Attempts,
		GiveUpAfter:      settings.GiveUpAfter,
		Patience:         a.settings.Ordering.Patience,
		Batch:            settings.Batch,
		Lease:            settings.Lease,
		SendLease:        a.settings.Send.Lease,
		Margin:           settings.Timeout + time.Second,
		CallsPerProducer: callsPerProducer,
		QueuePerProducer: queuePerProducer,
		DeleteTimeout:    settings.Timeout,
		Logger:           a.logger,
		Metrics:          breakerEvents{a.metrics, a.events},
		AnsweredAt:       a.answeredAt,
	}
	if a.tracer != nil {
		c.Trace = a.tracer.Confirm
	}
	if a.settings.DeleteBusiness.When == config.AfterAck {
		c.DeleteWhen = confirmloop.AfterAck
	}
	s.confirmer = confirmloop.New(c)
	a.metrics.Queue("confirm", s.confirmer.Waiting)
	a.metrics.Queue("markers", s.confirmer.Markers)
	a.closeWith(closer{name: "confirm stage", share: confirmShare, close: s.confirmer.Close})
}

// answeredAt is when the producers last answered, by the reports of all coordinators.
func (a *App) answeredAt() map[string]time.Time {
	answered := map[string]time.Time{}
	for _, p := range a.peers.Sums(time.Now()).Producers() {
		answered[p.Name] = p.AnsweredAt
	}
	return answered
}

// leftSchedule is when ACKNOWLEDGED messages are looked for although markers are deleted before publishing: they are
// left from another configuration, or from a coordinator with another configuration.
const leftSchedule = "@every 30s"

// openLoops builds the loops of both stages; they are started when all parts are open.
func (a *App) openLoops(s *stages) (err error) {
	if s.sendLoop, err = a.newLoop("send", a.settings.Send.Schedule, s.sender.Pass); err != nil {
		return err
	}
	if s.confirmLoop, err = a.newLoop("confirm", a.settings.Confirm.Schedule, s.confirmer.Pass); err != nil {
		return err
	}
	schedule := leftSchedule
	if a.settings.DeleteBusiness.When == config.AfterAck {
		schedule = a.settings.Confirm.Schedule
	}
	if s.deleteLoop, err = a.newLoop("delete", schedule, s.confirmer.PassAcknowledged); err != nil {
		return err
	}
	a.checks.set(checkSend, healthy(s.sendLoop))
	a.checks.set(checkConfirm, healthy(s.confirmLoop))
	return nil
}

// openServer builds the server for producers and operators: opened last, and so closed first.
func (a *App) openServer(
	s *stages, store *redisstore.Store, brokerStats func() []*adminv1.BrokerStats,
) error {
	var err error
	s.server, err = server.New(server.Config{
		Intake:       store,
		Inspector:    store,
		History:      store,
		DeadLetters:  a.backlog.letters.Load(),
		Targets:      a.callbacks,
		Attendance:   a.attendance,
		Pipeline:     &s.pipeline,
		Trusted:      a.settings.Trusted,
		ConfirmAfter: a.settings.Confirm.After, ConfirmTimeout: a.settings.Confirm.Timeout,
		ConfirmLease: a.settings.Confirm.Lease,
		SendLease:    a.settings.Send.Lease,
		Limits: server.Limits{
			Body: int(a.settings.Limits.Body), Waiting: mostWaiting,
			Bytes:   server.RequestBytes(debug.SetMemoryLimit(-1)),
			Streams: 2 * a.doors.share.API,
		},
		ConnectionAge:  a.bounds.ConnectionAge,
		ConnectionIdle: a.bounds.ConnectionIdle,
		PingAfter:      time.Duration(a.bounds.Rest) * server.PingAfter,
		Reflection:     a.settings.GRPC.Reflection,
		Credentials:    a.doors.apiTLS,
		Policies:       a.reloader.policies,
		HideBodies:     !a.settings.HTTP.Bodies,
		Access:         a.callers.authenticator,
		Withdrawn:      a.doors.withdrawn,
		Audit:          a.audit,
		Refused:        a.noteRefused,
		RefusedUnread:  a.metrics.RequestRefused,
		RefusedHTTP:    a.metrics.HTTPRefused,
		Findings:       a.allFindings,
		Problems: func(ctx context.Context, since, until time.Time) ([]*adminv1.Finding, error) {
			return a.pastProblems(ctx, store, since, until)
		},
		Coordinators:  a.fleetStats,
		AddSums:       a.addSums,
		Configuration: a.configuration,
		Brokers:       a.settings.BrokerNames(),
		BrokerStats:   brokerStats,
		Interceptors:  a.interceptors(),
		Logger:        a.logger,
	})
	if err != nil {
		return err
	}
	a.doors.server.Store(s.server)
	for name, waiting := range s.server.Queues() {
		a.metrics.Queue(name, waiting)
	}
	a.closeWith(closer{name: "grpc", share: serverShare, close: s.server.Stop})
	return nil
}

func (a *App) interceptors() []grpc.UnaryServerInterceptor {
	if a.tracer == nil {
		return []grpc.UnaryServerInterceptor{a.countCalls}
	}
	return []grpc.UnaryServerInterceptor{a.countCalls, a.tracer.Serve}
}

// traced is a publisher that exports spans if spans are wanted.
func (a *App) traced(publisher halfmsg.Publisher, system string) halfmsg.Publisher {
	if a.tracer == nil {
		return publisher
	}
	return a.tracer.Publisher(publisher, system)
}

// countCalls is a server interceptor.
func (a *App) countCalls(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (any, error) {
	began := time.Now()
	response, err := handler(ctx, request)
	method := path.Base(info.FullMethod)
	a.metrics.RPC(method, status.Code(err).String(), time.Since(began))
	a.countHalfMessages(request, response, err)
	if batch, ok := response.(interface {
		GetOutcomes() []*msghandlerv1.Outcome
	}); ok && err == nil {
		for _, outcome := range batch.GetOutcomes() {
			a.metrics.BatchOutcome(method, codes.Code(outcome.GetCode()).String()) //nolint:gosec // codes are small
		}
	}
	return response, err
}
