package amqpbroker_test

import (
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// An hour of fake time in which nothing but heartbeats go over the connection, and both sides hold on to it.
func TestHeartbeatsForAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := amqpbroker.New(amqpbroker.Config{})
		conn, err := amqp.DialConfig("amqp://guest:guest@memory/",
			amqp.Config{Dial: b.Dial, Heartbeat: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		ch := confirming(t, conn)
		// One second more, or the client would send a heartbeat during its close and fail.
		time.Sleep(time.Hour + time.Second)
		if !acked(t, publish(t, ch, amqp.Publishing{Body: []byte("x")})) {
			t.Error("not acknowledged after an hour")
		}
		if n := b.Depth("q"); n != 1 {
			t.Errorf("%d stored", n)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A client that falls silent is dropped after two heartbeats, and its deliveries go to other consumers.
func TestSilentClientIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := amqpbroker.New(amqpbroker.Config{})
		defer b.Close()
		var silent atomic.Bool
		conn, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{
			Heartbeat: 10 * time.Second,
			Dial: func(network, address string) (net.Conn, error) {
				conn, err := b.Dial(network, address)
				return mute{conn, &silent}, err
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		ch := confirming(t, conn)
		acked(t, publish(t, ch, amqp.Publishing{Body: []byte("x")}))
		if _, _, err := ch.Get("q", false); err != nil {
			t.Fatal(err)
		}
		closed := conn.NotifyClose(make(chan *amqp.Error, 1))
		silent.Store(true)
		time.Sleep(19 * time.Second)
		if n := b.Depth("q"); n != 0 {
			t.Errorf("%d messages are back before the client's time is over", n)
		}
		time.Sleep(6 * time.Second)
		if n := b.Depth("q"); n != 1 {
			t.Errorf("%d messages are back after the client was silent for 25 s", n)
		}
		<-closed
	})
}

// mute drops the writes of a silent client.
type mute struct {
	net.Conn
	silent *atomic.Bool
}

func (m mute) Write(p []byte) (int, error) {
	if m.silent.Load() {
		return len(p), nil
	}
	return m.Conn.Write(p)
}

// A silent client is dropped during the handshake.
func TestHandshakeTakesOnlySoLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := amqpbroker.New(amqpbroker.Config{})
		defer b.Close()
		conn, err := b.Dial("", "")
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("told something")
		}
		if waited := time.Since(before); waited != 10*time.Second {
			t.Errorf("hung up after %v", waited)
		}
	})
}

// Times to live follow fake time too.
func TestExpiryInFakeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := amqpbroker.New(amqpbroker.Config{})
		defer b.Close()
		conn, err := amqp.DialConfig("amqp://guest:guest@memory/", amqp.Config{Dial: b.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ch := confirming(t, conn)
		acked(t, publish(t, ch, amqp.Publishing{Expiration: "60000"}))
		acked(t, publish(t, ch, amqp.Publishing{}))
		acked(t, publish(t, ch, amqp.Publishing{Expiration: "1"}))
		for _, c := range []struct {
			after time.Duration
			depth int
		}{{59 * time.Second, 3}, {2 * time.Second, 2}, {time.Hour, 2}} { // the last is behind a lasting message
			time.Sleep(c.after)
			if n := b.Depth("q"); n != c.depth {
				t.Errorf("after %v more: %d messages, want %d", c.after, n, c.depth)
			}
		}
	})
}
