package docs

import (
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// foreign are the commands of others that pages use.
var foreign = strings.Fields(`
	[ apt-get awk base64 bash cat cd chgrp chmod chown cosign cp curl cut date diff dnf docker dpkg echo exit false
	getent gh git go grep groupadd head helm id install java javac jobs journalctl jq kcat kill kubectl ln ls make man
	mariadb mkdir mv nats node npm openssl printf promtool ps psql python3 rabbitmq-plugins rabbitmqadmin rabbitmqctl
	redis-cli redis-server rm rpm sed seq set sh sha256sum skopeo sleep sort source sqlite3 systemctl tail tar tee test
	touch tr true ulimit umask uniq useradd wait wc xargs`)

// wrappers are commands that run the command after them.
var wrappers = []string{"sudo", "nohup", "exec", "time", "env", "nice", "watch", "setsid"}

// script is a block of commands that is being checked.
type script struct {
	t *testing.T
	// at makes a problem of a line of the script.
	at       func(line int, what string) problem
	problems []problem
	// variables have the literal values of the script's assignments.
	variables map[string]string
	functions []string
	// directories are those of the repository to which the script has changed.
	directories []string
	// whole says that commands are complete, and reading that only variables and functions are noted.
	whole, reading bool
}

// checkShell checks the commands of a block without running them.
func checkShell(t *testing.T, b *block) []problem {
	t.Helper()
	s := newScript(t, b.problem)
	s.reading = true
	for _, earlier := range b.before {
		if earlier.language == "sh" {
			s.check(earlier.text())
		}
	}
	s.problems, s.reading = nil, false
	s.check(b.text())
	return s.problems
}

// checkConsole checks the commands of a block: the lines after "$ ", with the lines that continue them.
func checkConsole(t *testing.T, b *block) []problem {
	t.Helper()
	s := newScript(t, b.problem)
	var commands strings.Builder
	command := ""
	for _, line := range b.lines {
		typed, begins := strings.CutPrefix(line, "$ ")
		if begins {
			command = typed
		} else if command != "" {
			command += "\n" + strings.TrimPrefix(line, "> ")
		}
		complete := command != "" && isComplete(command)
		if complete {
			commands.WriteString(command)
			command = ""
		}
		commands.WriteString("\n")
	}
	commands.WriteString(command)
	s.check(commands.String())
	return s.problems
}

func isComplete(command string) bool {
	_, err := syntax.NewParser().Parse(strings.NewReader(command), "")
	return !syntax.IsIncomplete(err) && !strings.HasSuffix(command, "\\")
}

func newScript(t *testing.T, at func(line int, what string) problem) *script {
	return &script{t: t, at: at, variables: map[string]string{"HOME": "/root", "PWD": "/root"}, whole: true}
}

// check parses the text and checks each command.
func (s *script) check(text string) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		var parsed syntax.ParseError
		line := uint(0)
		if errors.As(err, &parsed) {
			line = parsed.Pos.Line()
		}
		s.problem(line, "bash cannot read this: %v", err)
		return
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.FuncDecl:
			s.functions = append(s.functions, node.Name.Value)
		case *syntax.DeclClause:
			s.assign(node.Args)
		case *syntax.CallExpr:
			s.assign(node.Assigns)
			if !s.reading {
				s.call(node)
			}
		}
		return true
	})
}

func (s *script) problem(line uint, format string, args ...any) {
	s.problems = append(s.problems, s.at(int(line), fmt.Sprintf(format, args...)))
}

// unknown stands for a part of a word that only a running shell knows.
const unknown = "UNKNOWN"

// fields are the words as the shell would hand them to a command.
func (s *script) fields(words ...*syntax.Word) ([]string, error) {
	return expand.Fields(&expand.Config{
		Env: expand.FuncEnviron(func(name string) string {
			if value, known := s.variables[name]; known {
				return value
			}
			return unknown
		}),
		CmdSubst: func(w io.Writer, _ *syntax.CmdSubst) error {
			_, err := io.WriteString(w, unknown)
			return err
		},
		ProcSubst: func(*syntax.ProcSubst) (string, error) { return "/dev/fd/63", nil },
	}, words...)
}

// assign notes the values of variables, and checks the names and values of our own.
func (s *script) assign(all []*syntax.Assign) {
	for _, a := range all {
		if a.Name == nil || a.Naked {
			continue
		}
		value := ""
		if a.Value != nil {
			parts, err := s.fields(a.Value)
			if err != nil {
				s.problem(a.Pos().Line(), "%v", err)
			}
			value = strings.Join(parts, " ")
		}
		s.variables[a.Name.Value] = value
		s.variable(a.Pos().Line(), a.Name.Value, value)
	}
}

func (s *script) variable(line uint, name, value string) {
	if strings.Contains(value, unknown) {
		value = ""
	}
	if what := knownVariable(name, value); what != "" {
		s.problem(line, "%s", what)
	}
}

// call checks a command.
func (s *script) call(call *syntax.CallExpr) {
	args, err := s.fields(call.Args...)
	if err != nil {
		s.problem(call.Pos().Line(), "%v", err)
	}
	args = s.unwrapped(call.Pos().Line(), args)
	if len(args) == 0 {
		return
	}
	line, name := call.Pos().Line(), path.Base(args[0])
	_, ours := programs[name]
	switch {
	case ours:
		if err := parseArguments(name, args[1:], s.whole); err != nil {
			s.problem(line, "%s does not take these arguments: %v", name, err)
		}
	case name == "cd" && len(args) > 1:
		s.directories = append(s.directories, args[1])
	case name == "make":
		s.make(line, args[1:])
	case name == "go":
		s.goTool(line, args[1:])
	case name == "curl":
		s.curl(line, args[1:])
	}
	if strings.Contains(args[0], "/") {
		ours = true // a path, which is checked below
	}
	if !ours && !slices.Contains(slices.Concat(foreign, samples, s.functions), name) {
		s.problem(line, "the command %s is unknown: correct the name, or enter the command into the list foreign of "+
			"test/docs/shell_test.go", name)
	}
	for _, arg := range args {
		s.path(line, arg)
	}
}

// unwrapped is the command behind sudo, env and the like.
func (s *script) unwrapped(line uint, args []string) []string {
	for len(args) > 1 && slices.Contains(wrappers, args[0]) {
		args = args[1:]
		for len(args) > 1 && (strings.HasPrefix(args[0], "-") || strings.Contains(args[0], "=")) {
			if name, value, is := strings.Cut(args[0], "="); is {
				s.variable(line, name, value)
			}
			if args[0] == "-u" || args[0] == "-n" {
				args = args[1:]
			}
			args = args[1:]
		}
	}
	return args
}

// roots are the directories of the repository.
var roots = regexp.MustCompile(
	`^(\./)?(\.ci|broker|cmd|consumer|deploy|docs|envelope|examples|internal|msghandlertest|` +
		`producer|prometheus|proto|redis|scripts|test)/`)

// tagPattern is a tag of git, such as producer/v1.0.0.
var tagPattern = regexp.MustCompile(`/v\d+\.\d+\.\d+`)

// path demands that a file or directory of the repository exists.
func (s *script) path(line uint, arg string) {
	arg, _ = strings.CutSuffix(arg, "/...")
	if !roots.MatchString(arg) || strings.Contains(arg, unknown) || tagPattern.MatchString(arg) {
		return
	}
	for _, directory := range append([]string{""}, s.directories...) {
		if found, _ := filepath.Glob(filepath.Join(root, directory, arg)); len(found) > 0 {
			return
		}
	}
	s.problem(line, "the repository has no %s: correct the path", arg)
}
