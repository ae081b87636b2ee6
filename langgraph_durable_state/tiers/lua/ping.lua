-- Answers.
return 1
