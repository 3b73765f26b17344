package amqpbroker

// maxMessage is the largest accepted body, as with RabbitMQ: 128 MiB.
const maxMessage = 128 << 20

// command is a whole method, with its content, if any.
type command struct {
	channel    uint16
	id         methodID
	arguments  decoder
	properties properties
	encoded    []byte
	body       []byte
}

// incoming is a command whose content is still incomplete.
type incoming struct {
	command
	header bool
	size   uint64
}

// assemble takes a frame and returns the command that the frame completes, if any.
func (c *connection) assemble(f frame) (*command, error) {
	pending := c.incoming[f.channel]
	switch {
	case f.kind == frameMethod && pending == nil:
		return c.assembleMethod(f)
	case f.kind == frameHeader && pending != nil && !pending.header:
		return c.assembleHeader(f, pending)
	case f.kind == frameBody && pending != nil && pending.header:
		pending.body = append(pending.body, f.payload...)
		return c.complete(f.channel, pending)
	}
	return nil, connectionError(codeUnexpectedFrame, "type %d on channel %d", f.kind, f.channel)
}

func (c *connection) assembleMethod(f frame) (*command, error) {
	d := decoder{b: f.payload}
	id := methodID(d.u32())
	if d.err != nil {
		return nil, connectionError(codeFrameError, "a method without a number")
	}
	cmd := command{channel: f.channel, id: id, arguments: d}
	if id != basicPublish {
		return &cmd, nil
	}
	if c.phase != phaseOpen {
		return nil, connectionError(codeCommandInvalid, "a publishing before the connection is open")
	}
	c.incoming[f.channel] = &incoming{command: cmd}
	return nil, nil
}

func (c *connection) assembleHeader(f frame, pending *incoming) (*command, error) {
	d := decoder{b: f.payload}
	class := d.u16()
	d.u16()
	pending.size = d.u64()
	if d.err != nil || class != classBasic {
		return nil, connectionError(codeFrameError, "a malformed content header")
	}
	if pending.size > maxMessage {
		// RabbitMQ reads such a body and then closes only the channel. This broker does not hold so much.
		return nil, connectionError(codePreconditionFailed, "message size %d is larger than configured max size %d",
			pending.size, maxMessage)
	}
	p, err := parseProperties(d.b)
	if err != nil {
		return nil, connectionError(codeSyntaxError, "%v", err)
	}
	pending.header, pending.properties, pending.encoded = true, p, d.b
	return c.complete(f.channel, pending)
}

// complete returns the command once the whole body is there.
func (c *connection) complete(channel uint16, pending *incoming) (*command, error) {
	switch n := uint64(len(pending.body)); {
	case n < pending.size:
		return nil, nil
	case n > pending.size:
		return nil, connectionError(codeFrameError, "a body of %d octets where %d were announced", n, pending.size)
	}
	delete(c.incoming, channel)
	return &pending.command, nil
}
