-- Evaluate a module file as Lmod does, with as much of Lmod as berth's asks for, and print what it
-- sets: `lua module.lua FILE`. A function that is not here is an error, as a misspelt one is.
local function join(...) return (table.concat({ ... }, "/"):gsub("//+", "/")) end
local lines = {}
local function says(what) return function(...) lines[#lines + 1] = table.concat({ what, ... }, " ") end end
local lmod = { os = { getenv = os.getenv }, pathJoin = join }
for _, name in ipairs { "help", "whatis", "conflict", "prepend_path", "append_path" } do lmod[name] = says(name) end
assert(loadfile(arg[1], "t", lmod))()
print(table.concat(lines, "\n"))
