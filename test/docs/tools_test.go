package docs

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/msghandler/msghandler/proto/msghandler/v1" // registers the methods
)

var targetPattern = regexp.MustCompile(`(?m)^([a-z-]+):`)

// make demands that the targets exist, and the variables.
func (s *script) make(line uint, args []string) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		s.t.Fatal(err)
	}
	var targets []string
	for _, found := range targetPattern.FindAllStringSubmatch(string(makefile), -1) {
		targets = append(targets, found[1])
	}
	for _, arg := range args {
		name, _, isVariable := strings.Cut(arg, "=")
		switch {
		case strings.HasPrefix(arg, "-"):
		case isVariable && !regexp.MustCompile(`(?m)\$\(`+name+`\b|^`+name+` `).Match(makefile):
			s.problem(line, "the Makefile has no variable %s", name)
		case !isVariable && !slices.Contains(targets, arg):
			s.problem(line, "the Makefile has no target %s: make help lists the targets", arg)
		}
	}
}

// goTool demands that each alternative of -run, -bench and -fuzz names a test in the packages of go test.
func (s *script) goTool(line uint, args []string) {
	var patterns, functions []string
	for i, arg := range args {
		if slices.Contains([]string{"-run", "-bench", "-fuzz"}, arg) && i+1 < len(args) {
			patterns = append(patterns, strings.Split(args[i+1], "|")...)
		}
		if directory, isPackage := strings.CutPrefix(arg, "./"); isPackage {
			functions = append(functions, functionsIn(filepath.Join(root, directory))...)
		}
	}
	for _, pattern := range patterns {
		first, _, _ := strings.Cut(pattern, "/")
		name, err := regexp.Compile(first)
		all := strings.Trim(first, "^$.") == ""
		if len(functions) > 0 && (err != nil || !all && !slices.ContainsFunc(functions, name.MatchString)) {
			s.problem(line, "no test of these packages is named %s", pattern)
		}
	}
}

var functionPattern = regexp.MustCompile(`(?m)^func (\w+)\(`)

// functionsIn are the names of the functions of a package.
func functionsIn(directory string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(directory, "*.go")) // a missing directory is reported as a path
	for _, file := range files {
		source, _ := os.ReadFile(file)
		for _, found := range functionPattern.FindAllStringSubmatch(string(source), -1) {
			names = append(names, found[1])
		}
	}
	return names
}

// curl demands that a method of ours exists.
func (s *script) curl(line uint, args []string) {
	for _, arg := range args {
		u, err := url.Parse(arg)
		if err != nil {
			continue
		}
		name, is := strings.CutPrefix(u.Path, "/msghandler.v1.")
		if !is {
			continue
		}
		method := protoreflect.FullName("msghandler.v1." + strings.ReplaceAll(name, "/", "."))
		if _, err := protoregistry.GlobalFiles.FindDescriptorByName(method); err != nil {
			s.problem(line, "%s: %v: proto/msghandler/v1/msghandler.proto has the methods", arg, err)
		}
	}
}
