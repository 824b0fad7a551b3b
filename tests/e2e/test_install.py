#!/usr/bin/env python3
"""`cmake --install`: the files, and programs in C and C++ built against them."""
import os
import re
import shutil
import subprocess
import tempfile

from support import BUILD, ROOT, TALES, Case, main, public_header

CMAKE = os.environ.get("CMAKE_COMMAND") or "cmake"
PROGRAM = """
#include <setun.h>
#include <stdio.h>
int main(void) {
  setun_error error;
  setun_model *model = NULL;
  setun_model_params params = setun_model_params_default();
  if (setun_model_load("no-such-model", &params, &model, &error) == SETUN_OK) return 1;
  return printf("%s: %s\\n", setun_version(), error.message) < 0;
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.22)
project(user C CXX)
find_package(setun REQUIRED)
foreach(language c cpp)
  add_executable(shared_${language} main.${language})
  target_link_libraries(shared_${language} setun::setun)
  add_executable(static_${language} main.${language})
  target_link_libraries(static_${language} setun::setun_static)
endforeach()
"""


# As a part of another project, by its path or fetched.
PART = """
cmake_minimum_required(VERSION 3.22)
project(user C)
if(FETCH)
  include(FetchContent)
  FetchContent_Declare(setun SOURCE_DIR @ROOT@)
  FetchContent_MakeAvailable(setun)
else()
  add_subdirectory(@ROOT@ setun)
endif()
foreach(name setun setun_test unit_json)
  if(TARGET ${name})
    message(FATAL_ERROR "${name} is a target")
  endif()
endforeach()
if(SETUN_TESTS OR SETUN_COMMAND OR SETUN_INSTALL)
  message(FATAL_ERROR "tests, the command or the installation are on")
endif()
foreach(name setun setun_static)
  add_executable(${name}_user main.c)
  target_link_libraries(${name}_user setun::${name})
  add_library(${name}_header OBJECT main.c)
  target_include_directories(${name}_header PRIVATE $<TARGET_PROPERTY:setun::${name},INTERFACE_INCLUDE_DIRECTORIES>)
endforeach()
"""


def run(*command, **more):
    result = subprocess.run(command, capture_output=True, text=True, **more)
    if result.returncode:
        raise AssertionError(f"{' '.join(command)}\n{result.stdout}{result.stderr}")
    return result.stdout


def cache_value(name):
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as file:
        found = re.search(rf"^{name}:\w+=(.*)$", file.read(), re.MULTILINE)
    return found.group(1) if found else ""


class InstallTest(Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        run(CMAKE, "--install", BUILD, "--prefix", "/opt/setun", env={**os.environ, "DESTDIR": cls.folder + "/staging"})
        # a prefix that is not the configured one, and is moved after installing
        cls.prefix = os.path.join(cls.folder, "moved")
        shutil.move(cls.folder + "/staging/opt/setun", cls.prefix)
        libraries = [path for path, _, files in os.walk(cls.prefix) if "libsetun.a" in files]
        cls.libraries = libraries[0] if libraries else cls.prefix

    def path(self, *parts):
        return os.path.join(self.prefix, *parts)

    def test_destdir_and_prefix_are_honoured(self):
        staging = os.path.join(self.folder, "staging")
        left = [os.path.join(path, name) for path, _, names in os.walk(staging) for name in names]
        self.assertEqual(left, [])

    def test_files(self):
        commands = re.findall(r"^  ([a-z]+) {2,}", self.good("help").decode(), re.MULTILINE)
        files = ["bin/setun", "include/setun.h", "share/bash-completion/completions/setun",
                 "share/zsh/site-functions/_setun", "share/fish/vendor_completions.d/setun.fish", "share/man/man1/setun.1"]
        files += [f"share/man/man1/setun-{name}.1" for name in commands]
        for name in files:
            self.assertTrue(os.path.isfile(self.path(*name.split("/"))), name)
        self.assertEqual(sorted(os.listdir(self.path("include"))), sorted(os.listdir(os.path.join(ROOT, "include"))))
        for name in ("libsetun.so", "libsetun.a", "pkgconfig/setun.pc", "cmake/setun/setunConfig.cmake"):
            self.assertTrue(os.path.exists(os.path.join(self.libraries, name)), name)

    def test_manual_pages_are_what_the_command_prints(self):
        with open(self.path("share", "man", "man1", "setun-run.1"), "rb") as file:
            self.assertEqual(file.read(), self.good("help", "--man", "run"))
        with open(self.path("share", "zsh", "site-functions", "_setun"), "rb") as file:
            self.assertEqual(file.read(), self.good("help", "--completion", "zsh"))

    def test_soname_and_symbols(self):
        if not shutil.which("readelf") or not shutil.which("nm"):
            self.skipTest("there is no readelf or nm")
        library = os.path.join(self.libraries, "libsetun.so")
        self.assertRegex(run("readelf", "-d", library), r"SONAME.*\[libsetun\.so\.\d+\]")
        symbols = [line.split()[-1] for line in run("nm", "-D", "--defined-only", library).splitlines()]
        self.assertIn("setun_model_load", symbols)
        self.assertEqual([name for name in symbols if not name.startswith("setun_")], [])

    def build_tools(self):
        if cache_value("SETUN_SANITIZE"):
            self.skipTest("programs outside would need the same sanitizers")
        for tool in ("cc", "c++", "pkg-config"):
            if not shutil.which(tool):
                self.skipTest(f"there is no {tool}")
        for name in ("main.c", "main.cpp"):
            with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
                file.write(PROGRAM)

    def check_program(self, path):
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries, "DYLD_LIBRARY_PATH": self.libraries}
        self.assertRegex(run(path, env=environment), r"\A\d+\.\d+\.\d+: no-such-model.*\n\Z")

    def test_pkg_config(self):
        self.build_tools()
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(self.libraries, "pkgconfig")}
        self.assertEqual(run("pkg-config", "--modversion", "setun", env=environment), cache_value("CMAKE_PROJECT_VERSION") + "\n")
        flags = run("pkg-config", "--cflags", "--libs", "setun", env=environment).split()
        for compiler, name in (("cc", "main.c"), ("c++", "main.cpp")):
            program = os.path.join(self.folder, name + ".program")
            run(compiler, "-Wall", "-Wextra", "-Werror", os.path.join(self.folder, name), "-o", program, *flags)
            self.check_program(program)

    def test_symbols_are_those_of_the_header(self):
        """The shared library exports all functions of setun.h, and nothing else."""
        if not shutil.which("nm"):
            self.skipTest("nm is not installed")
        header = public_header(self.path("include"))
        functions = set(re.findall(r"\bSETUN_API\s[^;(]*?\b(setun_\w+)\(", header))
        functions.update(f"{kind}_init" for kind in re.findall(r"^SETUN_PARAMS\((\w+)\)", header, re.M))
        self.assertGreater(len(functions), 80)
        listed = run("nm", "-D", "--defined-only", os.path.join(self.libraries, "libsetun.so"))
        symbols = {line.split()[2] for line in listed.splitlines() if line.split()[1] not in "VvWwi"}
        if not cache_value("SETUN_SANITIZE"):
            self.assertEqual(symbols, functions)
        self.assertEqual(functions - symbols, set())

    def test_versions_agree(self):
        with open(os.path.join(self.libraries, "pkgconfig", "setun.pc"), encoding="utf-8") as file:
            found = re.search(r"^Version: (.*)$", file.read(), re.MULTILINE).group(1)
        self.assertIn(found, self.good("version").decode())
        self.assertTrue(os.path.exists(os.path.join(self.libraries, "libsetun.so." + found)))

    def build_example(self, compiler, name, *flags):
        """The program's path, built with what pkg-config says, against the shared library."""
        self.build_tools()
        environment = {**os.environ, "PKG_CONFIG_PATH": os.path.join(self.libraries, "pkgconfig")}
        found = run("pkg-config", "--cflags", "--libs", "setun", env=environment).split()
        program = os.path.join(self.folder, f"{name}.{compiler}")
        run(compiler, "-Wall", "-Wextra", "-Werror", *flags, os.path.join(ROOT, "examples", name), "-o", program, *found)
        if shutil.which("readelf"):
            self.assertIn("libsetun.so", run("readelf", "-d", program))
        return program

    def run_example(self, program, *args):
        environment = {**os.environ, "LD_LIBRARY_PATH": self.libraries}
        return subprocess.run([program, *args], env=environment, capture_output=True, text=True, timeout=120)

    def test_example_simple(self):
        programs = [self.build_example("cc", "simple.c", "-std=c11"), self.build_example("c++", "simple.c", "-xc++")]
        for program in programs:
            prompt = "Once upon a time"
            result = self.run_example(program, TALES, prompt)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.startswith(prompt), result.stdout)
            self.assertGreater(len(result.stdout), len(prompt) + 40)
            # the default seed and the model's own defaults, which are the library's: as the command prints it
            want = self.good("run", TALES, "-p", prompt, "-n", 64, "--seed", 0).decode()
            self.assertEqual(result.stdout, want)
            result = self.run_example(program, "no-such-model", prompt)
            self.assertEqual((result.returncode, result.stdout), (1, "\n"))
            self.assertRegex(result.stderr, r"\Ano-such-model: .+\n\Z")
            self.assertEqual(self.run_example(program).returncode, 2)
            result = self.run_example(program, TALES, "")  # from BOS alone
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertGreater(len(result.stdout), 40)

    def test_example_two_sessions(self):
        program = self.build_example("cc", "two_sessions.c", "-std=c11", "-pthread")
        result = self.run_example(program, TALES, "Once upon a time", "The fox")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        lines = result.stdout.splitlines()
        self.assertEqual(set(line.split(":")[0] for line in lines if ": " in line), {"first", "second"})
        self.assertEqual(lines[-2:], ["first: (stopped)", "second: (ended)"])
        self.assertGreaterEqual(sum(line.startswith("second: ") for line in lines), 16)
        self.assertEqual(self.run_example(program, "no-such-model", "a", "b").returncode, 1)

    def test_example_eight_prompts(self):
        programs = [self.build_example("cc", "eight_prompts.c", "-std=c11"),
                    self.build_example("c++", "eight_prompts.c", "-xc++")]
        # two prompts begin the same; each text is what the command writes with its seed
        prompts = ["Once upon a time", "Once upon a time there was", "A little girl", "One day", "The fox", "In the garden",
                   "Tom had a", "It was raining"]
        want = "".join(self.good("run", TALES, "-p", prompt, "-n", 32, "--seed", seed).decode().rstrip("\n") + "\n\n"
                       for seed, prompt in enumerate(prompts))
        for program in programs:
            result = self.run_example(program, TALES, *prompts)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertEqual(result.stdout, want)
        result = self.run_example(program, TALES, "The sea")  # and seven prompts of its own
        self.assertEqual((result.returncode, result.stdout.count("\n\n")), (0, 8))
        self.assertEqual(self.run_example(program, "no-such-model").returncode, 1)
        self.assertEqual(self.run_example(program).returncode, 2)

    def test_cmake_package(self):
        self.build_tools()
        with open(os.path.join(self.folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
            file.write(PROJECT)
        build = os.path.join(self.folder, "build")
        run(CMAKE, "-S", self.folder, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run(CMAKE, "--build", build)
        for name in ("shared_c", "shared_cpp", "static_c", "static_cpp"):
            self.check_program(os.path.join(build, name))

    def test_part_of_another_project(self):
        """add_subdirectory and FetchContent configure, and programs find the header. Building the whole library again
        is left to check.sh --full."""
        self.build_tools()
        source = os.path.join(self.folder, "part")
        os.mkdir(source)
        for name, text in (("CMakeLists.txt", PART.replace("@ROOT@", ROOT)), ("main.c", PROGRAM)):
            with open(os.path.join(source, name), "w", encoding="utf-8") as file:
                file.write(text)
        for fetch in ("ON", "OFF"):
            build = os.path.join(self.folder, "part-" + fetch)
            run(CMAKE, "-S", source, "-B", build, f"-DFETCH={fetch}", "-DCMAKE_BUILD_TYPE=Debug")
            run(CMAKE, "--build", build, "--target", "setun_header", "setun_static_header")
        if int(os.environ.get("SETUN_TEST_SECONDS") or 0) < 600:
            return
        run(CMAKE, "--build", build, "-j", str(os.cpu_count() or 1))
        for name in ("setun_user", "setun_static_user"):
            self.check_program(os.path.join(build, name))

    def test_static_command(self):
        """SETUN_STATIC: its command, where one is built, needs no shared library."""
        if cache_value("SETUN_STATIC") != "ON":
            self.skipTest("this build has no SETUN_STATIC")
        self.assertNotIn("NEEDED", run("readelf", "-d", os.path.join(BUILD, "setun")))

    def test_fish_completes_commands_after_help(self):
        if not shutil.which("fish"):
            self.skipTest("fish is not installed")
        script = self.path("share", "fish", "vendor_completions.d", "setun.fish")
        found = run("fish", "--no-config", "-c", f"source '{script}'; complete -C 'setun help pe'").split("\n")
        self.assertEqual([line.split("\t")[0] for line in found if line], ["perplexity"])


if __name__ == "__main__":
    if not os.path.exists(os.path.join(BUILD, "CMakeCache.txt")):
        raise SystemExit(f"{BUILD} is not a build folder; SETUN_BUILD names it")
    main()
