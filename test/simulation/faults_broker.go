package simulation

import (
	"context"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// brokerFaults are faults of the broker. Refusals end messages as DEAD when send.backoff is used up.
var brokerFaults = []fault{
	{name: "nacks", chance: 20, start: judging(amqpbroker.Nack), excuse: excuse{refused: true, markers: true}},
	{name: "returns", chance: 20, start: judging(amqpbroker.Return), excuse: excuse{refused: true, markers: true}},
	{name: "lost confirms", chance: 30, start: judging(amqpbroker.CloseConn)},
	{name: "slow broker", chance: 20, start: slowBroker},
	{name: "broker cuts", chance: 20, start: cutBroker},
}

// judging returns a fault in which some publishings have another outcome.
func judging(v amqpbroker.Verdict) func(context.Context, *World, draws) {
	return func(ctx context.Context, w *World, d draws) {
		percent := 1 + d.intn("percent", 50)
		w.faulty.judge(func(p amqpbroker.Published) amqpbroker.Verdict {
			key := p.AppID + "/" + p.MessageID
			if ctx.Err() != nil || d.intn(key, 100) >= percent || !d.strikes(key) {
				return amqpbroker.Ack
			}
			return v
		})
	}
}

// slowBroker holds up the publishings of a connection.
func slowBroker(ctx context.Context, w *World, d draws) {
	percent := 1 + d.intn("percent", 20)
	w.faulty.judge(func(p amqpbroker.Published) amqpbroker.Verdict {
		key := p.AppID + "/" + p.MessageID
		if ctx.Err() != nil || d.intn(key, 100) >= percent {
			return amqpbroker.Ack
		}
		if length := d.within("length", 0, 20*time.Second); d.strikes(key) {
			_ = sleep(ctx, length)
		}
		return amqpbroker.Ack
	})
}

// cutBroker cuts all connections of the broker.
func cutBroker(ctx context.Context, w *World, d draws) {
	w.repeat(ctx, d, func() {
		w.Ledger.Fault("the broker cuts all connections")
		w.brokerHost.Cut(func(*Conn) bool { return true })
	})
}

func (f *faulty) judge(judge amqpbroker.Judge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.judges = append(f.judges, judge)
}
