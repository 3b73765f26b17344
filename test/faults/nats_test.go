package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
	"github.com/msghandler/msghandler/test/wire"
)

// natsInbox is the durable consumer of the load's stream, whose name is the load's exchange.
const natsInbox = "inbox"

// natsStream is a nats-server, or a cluster of them, with the load's stream.
type natsStream struct {
	servers []*servers.NATSServer
	// way is the coordinators' way to the only server.
	way *wire.Proxy
	js  jetstream.JetStream
	// user is the coordinators' user in the address of a server; empty: none.
	user string
	// consumed names the streams that have consumers.
	consumed []string
	// noted has the last sequence of each stream whose messages are noted.
	noted sync.Map
}

// onNATS sends the load's messages to so many servers of NATS.
func onNATS(nodes int) options {
	return options{stream: func(w *world) stream {
		if nodes == 1 {
			return newNATSStream(w, servers.NATS(w.t))
		}
		return newNATSStream(w, servers.NATSCluster(w.t, nodes)...)
	}}
}

func newNATSStream(w *world, nodes ...*servers.NATSServer) *natsStream {
	w.t.Helper()
	s := &natsStream{servers: nodes}
	if len(nodes) == 1 {
		s.way = wire.TCP(w.t, wire.Host(w.t, nodes[0].URL))
	}
	s.js = natsserver.JetStream(w.t, s.all())
	servers.Eventually(w.t, patience, "the stream is made", func() bool {
		_, err := s.js.CreateOrUpdateStream(w.t.Context(), s.config())
		return err == nil // a new cluster has no leader yet
	})
	return s
}

func (s *natsStream) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: exchange, Subjects: []string{"*"}, Replicas: len(s.servers), Discard: jetstream.DiscardNew,
	}
}

// all is the address of all servers.
func (s *natsStream) all() string {
	text := s.servers[0].URL
	for _, server := range s.servers[1:] {
		text += "," + strings.TrimPrefix(server.URL, "nats://")
	}
	return text
}

func (s *natsStream) url() string {
	if s.way != nil {
		return strings.Replace(s.way.URL(s.servers[0].URL), "//", "//"+s.user, 1)
	}
	return s.all()
}

func (*natsStream) asciiHeaders() bool { return true }

// consume notes each message of the stream once, and has consumers of the SDK let the messages have their effects: a
// server that was killed forgets its last deliveries, and delivers those messages again without a flag.
func (s *natsStream) consume(w *world) { s.consumeFrom(w, exchange) }

// consumeFrom consumes a stream.
func (s *natsStream) consumeFrom(w *world, stream string) {
	w.t.Helper()
	s.noteMessages(w, stream)
	handler := w.effect()
	w.runs(2, func(consuming func()) (func(context.Context) error, error) {
		c, err := natsconsumer.New(natsconsumer.Config{
			URL: s.servers[0].URL, Stream: stream, Name: natsInbox, Prefetch: 100, AckWait: 5 * time.Second,
			Consuming: consuming, Logger: quiet(),
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return c.Run(ctx, handler) }, nil
	})
	s.consumed = append(s.consumed, stream)
}

// noteMessages reads a stream from its beginning, until the test ends.
func (s *natsStream) noteMessages(w *world, stream string) {
	w.t.Helper()
	s.noted.Store(stream, uint64(0))
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for next := uint64(1); ctx.Err() == nil; {
			m, err := s.messageFrom(ctx, stream, next)
			if err != nil { // there is none yet, or no server
				pause(ctx, 20*time.Millisecond)
				continue
			}
			header := m.Header.Get
			attempt, _ := strconv.Atoi(header(publish.HeaderAttempt))
			w.got(header(publish.HeaderProducer)+"/"+header(publish.HeaderID), Copy{
				Content: NewContent(stream, m.Subject, callersHeaders(m.Header), m.Data), Attempt: attempt,
			})
			s.noted.Store(stream, m.Sequence)
			next = m.Sequence + 1
		}
	})
	w.t.Cleanup(func() { cancel(); reading.Wait() })
}

// messageFrom returns the first message of a stream from a sequence on.
func (s *natsStream) messageFrom(ctx context.Context, name string, from uint64) (*jetstream.RawStreamMsg, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	stream, err := s.js.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	return stream.GetMsg(ctx, from, jetstream.WithGetMsgSubject(">"))
}

// callersHeaders are the headers of a message that are its caller's.
func callersHeaders(all nats.Header) map[string]string {
	headers := map[string]string{}
	for name := range all {
		ours := strings.HasPrefix(name, "msghandler-") || name == publish.HeaderContentType
		if !ours && !strings.HasPrefix(name, "Nats-") {
			headers[name] = all.Get(name)
		}
	}
	return headers
}

func (s *natsStream) watch(*world) (noting bool) {
	s.consumed = append(s.consumed, exchange)
	return false
}

func (*natsStream) forget(*world, string) {}

func (s *natsStream) empty(w *world) {
	w.t.Helper()
	for _, stream := range s.consumed {
		servers.Eventually(w.t, patience, "the consumers have had all of "+stream, func() bool {
			inbox, err := s.js.Consumer(w.t.Context(), stream, natsInbox)
			if err != nil {
				return false
			}
			has, err := s.info(w.t.Context(), stream)
			noted, isNoted := s.noted.Load(stream)
			return err == nil && inbox.CachedInfo().AckFloor.Stream >= has.State.LastSeq &&
				(!isNoted || noted.(uint64) >= has.State.LastSeq)
		})
	}
}

// make makes a stream with all subjects that begin with its name.
func (s *natsStream) make(w *world, name string) {
	w.t.Helper()
	config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Replicas: len(s.servers)}
	_, err := s.js.CreateStream(w.t.Context(), config)
	w.must(err)
}

func (s *natsStream) makeDeadLetters(w *world) { s.make(w, deadLetters) }

func (*natsStream) unknown() string { return `no stream "` + astray + `"` }

func (s *natsStream) serve(w *world, name string) {
	s.make(w, name)
	s.consumeFrom(w, name)
}

func (s *natsStream) deadLetters(w *world) map[string]string {
	w.t.Helper()
	stream, err := s.js.Stream(w.t.Context(), deadLetters)
	w.must(err)
	reasons := map[string]string{}
	for sequence := range stream.CachedInfo().State.LastSeq {
		m, err := stream.GetMsg(w.t.Context(), sequence+1)
		w.must(err)
		reasons[m.Header.Get(publish.HeaderProducer)+"/"+m.Header.Get(publish.HeaderID)] = m.Header.Get(deadReason)
	}
	return reasons
}

// onStream is the broker of the row, which is of that kind.
func onStream[T stream](w *world) T {
	w.t.Helper()
	s, is := w.stream.(T)
	if !is {
		w.t.Fatalf("the row's broker is a %T", w.stream)
	}
	return s
}

// killNATS kills the server with publishes under way: the server stands still for a moment before it dies.
func killNATS(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	pause(ctx, time.Second)
	w.ledger.Fault("nats-server stands still")
	s.servers[0].Freeze()
	wait(500 * time.Millisecond)
	w.ledger.Fault("kill -9 of nats-server")
	s.servers[0].Kill()
	w.degraded(isDegraded)
	s.servers[0].Start()
	w.ledger.Fault("nats-server is back")
	w.allReady()
}

// closeNATS closes the coordinators' connections at short intervals, for as long as the load lasts.
func closeNATS(ctx context.Context, w *world, random *rand.Rand) {
	s := onStream[*natsStream](w)
	for ctx.Err() == nil {
		pause(ctx, time.Duration(200+random.IntN(1000))*time.Millisecond)
		w.ledger.Fault("the connections with NATS are closed")
		s.way.Disconnect()
	}
	w.allReady()
}

// freezeNATS stops the server for longer than a publish waits for its answer.
func freezeNATS(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	w.silent(ctx, func() (resume func()) {
		s.servers[0].Freeze()
		return s.servers[0].Thaw
	})
}

// killLeaders kills the leader of the stream, three times, for another server each time.
func killLeaders(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	for range 3 {
		pause(ctx, time.Second)
		leader := s.leader(w)
		w.ledger.Fault(fmt.Sprintf("kill -9 of the stream's leader, server %d", leader))
		s.servers[leader].Kill()
		servers.Eventually(w.t, patience, "another server leads", func() bool {
			now, err := s.findLeader(w.t.Context())
			return err == nil && now != leader
		})
		w.messagesGoOn(50)
		s.servers[leader].Start()
		w.ledger.Fault("the server is back")
		s.inSync(w)
	}
	w.allReady()
}

func (s *natsStream) leader(w *world) (at int) {
	w.t.Helper()
	servers.Eventually(w.t, patience, "the stream has a leader", func() (found bool) {
		var err error
		at, err = s.findLeader(w.t.Context())
		return err == nil
	})
	return at
}

// findLeader finds the server that leads the stream; the servers are named n0, n1 and so on.
func (s *natsStream) findLeader(ctx context.Context) (at int, err error) {
	info, err := s.info(ctx, exchange)
	if err != nil {
		return 0, err
	}
	if info.Cluster == nil || info.Cluster.Leader == "" {
		return 0, errors.New("no leader")
	}
	_, err = fmt.Sscanf(info.Cluster.Leader, "n%d", &at)
	return at, err
}

// inSync waits until every replica has everything: a further kill must leave a majority with the stream.
func (s *natsStream) inSync(w *world) {
	w.t.Helper()
	servers.Eventually(w.t, patience, "the replicas are in sync", func() bool {
		info, err := s.info(w.t.Context(), exchange)
		if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != len(s.servers)-1 {
			return false
		}
		for _, replica := range info.Cluster.Replicas {
			if !replica.Current || replica.Offline {
				return false
			}
		}
		return true
	})
}

func (s *natsStream) info(ctx context.Context, stream string) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	found, err := s.js.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	return found.Info(ctx)
}

// update changes the load's stream.
func (s *natsStream) update(w *world, change func(*jetstream.StreamConfig)) {
	w.t.Helper()
	config := s.config()
	change(&config)
	_, err := s.js.UpdateStream(w.t.Context(), config)
	w.must(err)
}

// stopJetStream ends JetStream in the running server, and starts JetStream again.
func stopJetStream(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	pause(ctx, time.Second)
	w.ledger.Fault("JetStream is stopped")
	s.servers[0].DisableJetStream()
	w.degraded(isDegraded)
	wait(2 * time.Second)
	s.servers[0].EnableJetStream()
	w.ledger.Fault("JetStream is started again")
	w.allReady()
}

// withdrawSubjects takes the load's subjects from the stream and gives them back.
func withdrawSubjects(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	w.refusing(ctx, func() {
		s.update(w, func(c *jetstream.StreamConfig) { c.Subjects = []string{"another"} })
	}, func() { s.update(w, func(*jetstream.StreamConfig) {}) })
}

// fillStream lets the stream be full for a while.
func fillStream(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	w.refusing(ctx, func() {
		info, err := s.info(ctx, exchange)
		w.must(err)
		s.update(w, func(c *jetstream.StreamConfig) { c.MaxMsgs = int64(info.State.Msgs) + 10 })
	}, func() { s.update(w, func(*jetstream.StreamConfig) {}) })
}

// silenceNATS makes the coordinators' connections swallow everything and stay open, until all have found out.
func silenceNATS(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*natsStream](w)
	pause(ctx, time.Second)
	w.ledger.Fault("the connections with NATS fall silent")
	began := time.Now()
	s.way.Silence()
	w.degraded(isDegraded)
	w.t.Logf("found out after %v", time.Since(began).Round(10*time.Millisecond))
	s.way.Restore()
	s.way.Disconnect() // connections made meanwhile have swallowed their greeting
	w.ledger.Fault("new connections work")
	w.allReady()
}
