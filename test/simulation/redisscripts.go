package simulation

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"

	luajson "github.com/alicebob/miniredis/v2/gopher-json"
	"github.com/alicebob/miniredis/v2/server"
	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/parse"
)

// redisScripts runs Redis's scripts in one Lua state, one after the other. miniredis opens a state for each call, and
// that takes longer than the script. Scripts cannot set globals, so none leaves anything to the next.
type redisScripts struct {
	redis *redisServer
	state *lua.LState
	// compiled are the scripts by their hashes, also those that Redis has forgotten.
	compiled map[string]*lua.LFunction
	// commands is the peer of commands in scripts, and answer has its replies.
	commands *server.Peer
	answer   bytes.Buffer
	writer   *bufio.Writer
	reader   *bufio.Reader
}

// protos are the compiled scripts of all worlds of the process, by their hashes.
var protos sync.Map

// libraries are the Lua libraries of Redis's scripts. The first loads cjson.
var libraries = []struct {
	name string
	open lua.LGFunction
}{
	{lua.LoadLibName, lua.OpenPackage},
	{lua.BaseLibName, lua.OpenBase},
	{lua.TabLibName, lua.OpenTable},
	{lua.StringLibName, lua.OpenString},
	{lua.MathLibName, lua.OpenMath},
}

// openScripts opens the state, before the server has its hook.
func openScripts(r *redisServer) (*redisScripts, error) {
	s := &redisScripts{
		redis: r, state: lua.NewState(lua.Options{SkipOpenLibs: true}), compiled: map[string]*lua.LFunction{},
	}
	for _, library := range libraries {
		s.state.Push(s.state.NewFunction(library.open))
		s.state.Push(lua.LString(library.name))
		s.state.Call(1, 0)
	}
	luajson.Preload(s.state)
	if err := s.state.DoString("cjson = require('json')"); err != nil {
		return nil, err
	}
	s.state.SetGlobal("redis", s.state.SetFuncs(s.state.NewTable(), map[string]lua.LGFunction{
		"call": s.call, "pcall": s.pcall, "log": func(*lua.LState) int { return 0 },
		"error_reply":  func(l *lua.LState) int { return pushReply(l, "err", l.CheckString(1)) },
		"status_reply": func(l *lua.LState) int { return pushReply(l, "ok", l.CheckString(1)) },
		"sha1hex":      func(l *lua.LState) int { l.Push(lua.LString(hashOf(l.CheckString(1)))); return 1 },
	}))
	s.protectGlobals()
	s.writer, s.reader = bufio.NewWriter(&s.answer), bufio.NewReader(&s.answer)
	s.commands = server.NewPeer(s.writer)
	// What tells miniredis that a command is one of a script, which holds the lock, is in the peers of its own scripts.
	r.mini.Server().SetPreHook(func(peer *server.Peer, command string, _ ...string) bool {
		if command == "PING" {
			s.commands.Ctx = peer.Ctx
		}
		return false
	})
	_, err := r.call("EVAL", "return redis.call('PING')", "0")
	return s, err
}

// protectGlobals has scripts fail that set a global, or read one that is not there.
func (s *redisScripts) protectGlobals() {
	refuse := func(l *lua.LState) int {
		l.RaiseError("Script attempted to access the global variable '%s'", l.Get(2).String())
		return 0
	}
	protection := s.state.SetFuncs(s.state.NewTable(), map[string]lua.LGFunction{"__newindex": refuse, "__index": refuse})
	s.state.SetMetatable(s.state.G.Global, protection)
}

// load compiles a script, unless Redis has it already.
func (s *redisScripts) load(hash, script string) error {
	s.redis.mini.Lock()
	defer s.redis.mini.Unlock()
	if s.compiled[hash] != nil {
		return nil
	}
	proto, known := protos.Load(hash)
	if !known {
		compiled, err := compile(script)
		if err != nil {
			return fmt.Errorf("ERR Error compiling script (new function): %w", err)
		}
		proto, _ = protos.LoadOrStore(hash, compiled)
	}
	s.compiled[hash] = s.state.NewFunctionFromProto(proto.(*lua.FunctionProto))
	return nil
}

func compile(script string) (*lua.FunctionProto, error) {
	const name = "user_script"
	if strings.HasPrefix(script, shebang) {
		script = "--" + script // Lua does not know flags
	}
	chunk, err := parse.Parse(strings.NewReader(script), name)
	if err != nil {
		return nil, err
	}
	return lua.Compile(chunk, name)
}

// run runs a loaded script for a peer. arguments are the number of keys, the keys, and the other arguments.
func (s *redisScripts) run(peer *server.Peer, hash string, arguments []string) {
	keys, err := strconv.Atoi(arguments[0])
	if arguments = arguments[1:]; err != nil || keys < 0 || keys > len(arguments) {
		peer.WriteError("ERR Number of keys can't be greater than number of args")
		return
	}
	s.redis.mini.Lock()
	defer s.redis.mini.Unlock()
	l := s.state
	defer l.SetTop(0)
	l.G.Global.RawSetString("KEYS", listOf(l, arguments[:keys]))
	l.G.Global.RawSetString("ARGV", listOf(l, arguments[keys:]))
	l.Push(s.compiled[hash])
	if err := l.PCall(0, 1, nil); err != nil {
		peer.WriteError("ERR Error running script: " + err.Error())
		return
	}
	writeReply(peer, l.Get(1))
}

func listOf(l *lua.LState, words []string) *lua.LTable {
	table := l.CreateTable(len(words), 0)
	for _, word := range words {
		table.Append(lua.LString(word))
	}
	return table
}

// call implements redis.call, and pcall redis.pcall.
func (s *redisScripts) call(l *lua.LState) int {
	answer, err := s.dispatch(l)
	if err != nil {
		l.Error(lua.LString(err.Error()), 1)
	}
	l.Push(luaOf(l, answer))
	return 1
}

func (s *redisScripts) pcall(l *lua.LState) int {
	answer, err := s.dispatch(l)
	if err != nil {
		return pushReply(l, "err", err.Error())
	}
	l.Push(luaOf(l, answer))
	return 1
}

// dispatch has the server run the command that is on the stack.
func (s *redisScripts) dispatch(l *lua.LState) (any, error) {
	words := make([]string, l.GetTop()) // the server may keep it
	for i := range words {
		switch word := l.Get(i + 1).(type) {
		case lua.LString:
			words[i] = string(word)
		case lua.LNumber:
			words[i] = word.String()
		default:
			l.RaiseError("Lua redis lib command arguments must be strings or integers")
		}
	}
	s.redis.mini.Server().Dispatch(s.commands, words)
	s.commands.Flush()
	answer, err := server.ParseReply(s.reader)
	s.answer.Reset()
	s.reader.Reset(&s.answer)
	return answer, err
}

// pushReply pushes a table with an error or a status.
func pushReply(l *lua.LState, kind, words string) int {
	table := l.NewTable()
	table.RawSetString(kind, lua.LString(words))
	l.Push(table)
	return 1
}

// luaOf is an answer as scripts see it.
func luaOf(l *lua.LState, answer any) lua.LValue {
	switch a := answer.(type) {
	case nil:
		return lua.LFalse
	case int:
		return lua.LNumber(a)
	case int64:
		return lua.LNumber(a)
	case []byte:
		return lua.LString(a)
	case string:
		return lua.LString(a)
	case server.Simple:
		table := l.NewTable()
		table.RawSetString("ok", lua.LString(a))
		return table
	case []any:
		table := l.CreateTable(len(a), 0)
		for _, one := range a {
			table.Append(luaOf(l, one))
		}
		return table
	}
	panic(fmt.Sprintf("an answer of the type %T", answer))
}

// writeReply writes the result of a script.
func writeReply(peer *server.Peer, v lua.LValue) {
	switch v := v.(type) {
	case lua.LBool:
		if v {
			peer.WriteInt(1)
		} else {
			peer.WriteNull()
		}
	case lua.LNumber:
		peer.WriteInt(int(v))
	case lua.LString:
		peer.WriteBulk(string(v))
	case *lua.LTable:
		writeTable(peer, v)
	default:
		peer.WriteNull()
	}
}

func writeTable(peer *server.Peer, table *lua.LTable) {
	if words, is := table.RawGetString("err").(lua.LString); is {
		peer.WriteError(string(words))
		return
	}
	if words, is := table.RawGetString("ok").(lua.LString); is {
		peer.WriteInline(string(words))
		return
	}
	n := 0
	for table.RawGetInt(n+1) != lua.LNil {
		n++
	}
	peer.WriteLen(n)
	for i := range n {
		writeReply(peer, table.RawGetInt(i+1))
	}
}
