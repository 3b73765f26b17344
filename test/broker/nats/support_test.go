package nats_test

import (
	"context"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
)

// The suite's helpers.
var (
	ready          = publishtest.Ready
	closePublisher = publishtest.Close
	message        = publishtest.Message
	messages       = publishtest.Messages
	expect         = publishtest.Expect
	count          = publishtest.Count
	publishAll     = publishtest.Publish
	outcome        = publishtest.PublishOne
)

// publisher starts a publisher that is ready, and closed when the test ends.
func publisher(t testing.TB, config nats.Config) *nats.Publisher {
	t.Helper()
	p := open(t, config)
	ready(t, p)
	return p
}

// open starts a publisher that is closed when the test ends.
func open(t testing.TB, config nats.Config) *nats.Publisher {
	t.Helper()
	config.Logger = publishtest.Logger(t)
	p, err := nats.New(quick(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePublisher(t, p, 15*time.Second) })
	return p
}

// quick is the configuration with times that fit a test.
func quick(config nats.Config) nats.Config {
	config.Heartbeat, config.WriteTimeout = time.Second, 500*time.Millisecond
	return config
}

// admin is a test's own connection, to make streams and to look. The connection reconnects by itself.
type admin struct {
	t  testing.TB
	js jetstream.JetStream
}

func connect(t testing.TB, url string) *admin {
	t.Helper()
	conn, err := client.Connect(url, client.MaxReconnects(-1), client.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return &admin{t: t, js: js}
}

// stream makes a stream with these subjects.
func (a *admin) stream(name string, subjects ...string) {
	a.t.Helper()
	a.make(jetstream.StreamConfig{Name: name, Subjects: subjects})
}

// make makes a stream, as soon as the servers can.
func (a *admin) make(config jetstream.StreamConfig) {
	a.t.Helper()
	var err error
	servers.Eventually(a.t, time.Minute, "the stream is made", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = a.js.CreateStream(ctx, config)
		if err != nil {
			a.t.Logf("make the stream %s: %v", config.Name, err)
		}
		return err == nil
	})
}

// read returns the messages of a stream, from a sequence number on.
func (a *admin) read(name string, from uint64) (all []*jetstream.RawStreamMsg) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := a.js.Stream(ctx, name)
	if err != nil {
		a.t.Fatal(err)
	}
	for n := max(from, 1); n <= stream.CachedInfo().State.LastSeq; n++ {
		m, err := stream.GetMsg(ctx, n)
		if err != nil {
			a.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// ids are the message ids in a stream, with the number of their copies.
func (a *admin) ids(name string) map[string]int {
	a.t.Helper()
	copies := map[string]int{}
	for _, m := range a.read(name, 1) {
		copies[m.Header.Get("msghandler-id")]++
	}
	return copies
}
