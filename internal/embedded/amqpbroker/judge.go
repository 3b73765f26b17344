package amqpbroker

import "errors"

// Judge decides what becomes of a publishing. It may block, which holds up only the connection that publishes; it may
// be called concurrently for several connections, and may call the broker's methods except Close.
type Judge func(Published) Verdict

// Published is a publishing as a Judge sees it.
type Published struct {
	Exchange, RoutingKey string
	Mandatory            bool
	// MessageID is the message_id property, empty when there is none.
	MessageID string
	// Headers holds bool, int64, float64, string and time.Time; headers of other types are there with their type's
	// letter.
	Headers map[string]any
	Body    []byte
	// Routed is the number of queues that the message would reach.
	Routed int
	// Confirm is the number that the channel's confirm will carry; 0 when the channel is not in confirm mode.
	Confirm uint64
}

// Verdict is what becomes of a publishing.
type Verdict int

// The verdicts.
const (
	// Ack lets the broker do what it would do anyway: return it if need be, store it, confirm it.
	Ack Verdict = iota
	// Nack does not store it and says so.
	Nack
	// DropConfirm stores it and never confirms it.
	DropConfirm
	// DropMessage confirms it and does not store it: a broker that lies.
	DropMessage
	// Refuse does not store it and closes the channel with 403, as when a permission is missing.
	Refuse
	// CloseChannel stores it and closes the channel with 541 in place of a confirm.
	CloseChannel
	// CloseConn stores it and cuts the connection in place of a confirm. Confirms of earlier publishings are sent
	// first.
	CloseConn
	// CutBefore cuts the connection before it is stored. Confirms of earlier publishings are sent first.
	CutBefore
)

// errCut ends a connection because a Judge said so.
var errCut = errors.New("the judge cut the connection")

// judge asks the judge, if there is one. The lock is let go meanwhile, so the judge may take its time; the caller must
// look things up again afterwards.
func (ch *channel) judge(p *publishing) Verdict {
	b := ch.conn.broker
	if b.config.Judge == nil {
		return Ack
	}
	published := Published{
		Exchange:   p.exchange,
		RoutingKey: p.key,
		Mandatory:  p.mandatory,
		Headers:    map[string]any{},
		Body:       p.body,
		Routed:     len(b.route(p.content)),
		Confirm:    p.confirm,
	}
	published.MessageID, _ = p.properties.text(propertyMessageID)
	for _, f := range p.properties.headers() {
		published.Headers[f.name] = f.value.plain()
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	return b.config.Judge(published)
}
