package amqpbroker

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// phase is how far a connection has come.
type phase int

const (
	phaseStart phase = iota
	phaseTune
	phaseOpening
	phaseOpen
	// phaseClosing: the broker has closed the connection and waits only for the client's close-ok.
	phaseClosing
)

// serverCapabilities are the capabilities announced to clients.
var serverCapabilities = []string{
	"publisher_confirms", "basic.nack", "consumer_cancel_notify", "per_consumer_qos", "authentication_failure_close",
	"connection.blocked",
}

// greet reads the protocol header and starts the handshake.
func (c *connection) greet() error {
	var header [len(protocolHeader)]byte
	if _, err := io.ReadFull(c.in, header[:]); err != nil {
		return err
	}
	if string(header[:]) != protocolHeader {
		c.out.add(func(b []byte) []byte { return append(b, protocolHeader...) })
		return fmt.Errorf("a client that does not speak AMQP 0-9-1: %q", header)
	}
	var capabilities table
	for _, name := range serverCapabilities {
		capabilities = append(capabilities, field{name, boolValue(true)})
	}
	about := table{
		{"capabilities", tableValue(capabilities)},
		{"product", stringValue(product)},
		// Clients choose their features by the version.
		{"version", stringValue("4.3 (compatible)")},
		{"information", stringValue("in memory only, for trying out and for tests")},
	}
	arguments := append(encoder{0, 9}, about.encode()...).longString("PLAIN").longString("en_US")
	c.send(0, connectionStart, arguments)
	return nil
}

// isClose says whether a frame still matters while the connection is being closed.
func (c *connection) isClose(f frame) bool {
	d := decoder{b: f.payload}
	id := methodID(d.u32())
	return f.kind == frameMethod && f.channel == 0 && (id == connectionClose || id == connectionCloseOK)
}

// handleConnection handles a method of the connection.
func (c *connection) handleConnection(cmd *command) error {
	if cmd.channel != 0 {
		return connectionError(codeCommandInvalid, "a method of the connection on channel %d", cmd.channel)
	}
	switch {
	case cmd.id == connectionClose:
		c.send(0, connectionCloseOK, nil)
		return errBye
	case cmd.id == connectionCloseOK && c.phase == phaseClosing:
		return errBye
	case cmd.id == connectionStartOK && c.phase == phaseStart:
		return c.authenticate(&cmd.arguments)
	case cmd.id == connectionTuneOK && c.phase == phaseTune:
		return c.tune(&cmd.arguments)
	case cmd.id == connectionOpen && c.phase == phaseOpening:
		return c.open(&cmd.arguments)
	}
	return connectionError(codeCommandInvalid, "unexpected method %d.%d", cmd.id.class(), cmd.id.number())
}

func (c *connection) authenticate(d *decoder) error {
	d.table()
	mechanism, response := d.shortString(), d.longString()
	if d.err != nil {
		return syntaxError(connectionStartOK, d.err)
	}
	parts := strings.Split(response, "\x00")
	known := len(parts) == 3 && parts[1] == user && parts[2] == password
	if mechanism != "PLAIN" || !known {
		return connectionError(codeAccessRefused, "Login was refused using authentication mechanism %s. "+
			"For details see the broker logfile.", mechanism)
	}
	c.phase = phaseTune
	c.send(0, connectionTune, encoder(nil).u16(maxChannel).u32(maxFrame).u16(uint16(heartbeat/time.Second)))
	return nil
}

func (c *connection) tune(d *decoder) error {
	_, size, seconds := d.u16(), d.u32(), d.u16()
	if d.err != nil {
		return syntaxError(connectionTuneOK, d.err)
	}
	switch {
	case size == 0:
		size = maxFrame
	case size < minFrame:
		return connectionError(codeNotAllowed,
			"negotiated frame_max = %d is lower than the minimum allowed value (%d)", size, minFrame)
	case size > maxFrame:
		return connectionError(codeNotAllowed,
			"negotiated frame_max = %d is higher than the maximum allowed value (%d)", size, maxFrame)
	}
	c.maxFrame = size
	// Two heartbeats go out in each interval; a client that is silent for two intervals counts as gone.
	interval := time.Duration(seconds) * time.Second
	c.out.setHeartbeat(interval / 2)
	c.idle = 2 * interval
	c.phase = phaseOpening
	return nil
}

func (c *connection) open(d *decoder) error {
	asked := d.shortString()
	if d.err != nil {
		return syntaxError(connectionOpen, d.err)
	}
	if asked != vhost {
		return connectionError(codeNotAllowed, "vhost %s not found", asked)
	}
	c.phase = phaseOpen
	c.until = time.Time{}
	c.send(0, connectionOpenOK, encoder(nil).shortString(""))
	return nil
}

// syntaxError is for a method with malformed arguments.
func syntaxError(id methodID, err error) *exception {
	return connectionError(codeSyntaxError, "malformed method %d.%d: %v", id.class(), id.number(), err)
}
